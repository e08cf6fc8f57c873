"""`gatehouse up` as users have it: real processes, NGINX and clients."""

from __future__ import annotations

import pytest
from installation import (
    HOST_NET,
    REVISED,
    address,
    apply,
    get,
    hello,
    holds,
    route,
    traffic,
    until,
)

from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = pytest.mark.process


async def test_a_gateway_and_a_route_carry_traffic_when_their_status_says_so(
    client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    await holds(client, "HTTPRoute", "app", "Accepted")
    assert where.startswith(HOST_NET)
    assert await get(where) == (200, "app")


async def test_endpoints_are_followed(client: kube.Client, backends: None) -> None:
    await apply(client, hello())
    where = await address(client)
    current = await client.get(resources.ENDPOINT_SLICES, "app-1", "default")
    current["endpoints"] = [{"addresses": [REVISED[0]]}]
    await client.update(resources.ENDPOINT_SLICES, current)
    await until(lambda: _answers(where, "/", (200, "revised")))
    await apply(client, hello())
    await until(lambda: _answers(where, "/", (200, "app")))


async def _answers(where: str, path: str, expected: tuple[int, str]) -> bool:
    return await get(where, path) == expected


async def test_a_route_to_a_service_that_is_missing_answers_500_and_the_rest_is_served(
    client: kube.Client, backends: None
) -> None:
    await apply(client, [*hello(), route("broken", "/broken", "nowhere")])
    where = await address(client)
    found = await holds(client, "HTTPRoute", "broken", "ResolvedRefs", "False")
    assert found["reason"] == "BackendNotFound"
    assert "Service default/nowhere does not exist" in found["message"]
    assert (await get(where, "/broken"))[0] == 500
    assert await get(where) == (200, "app")
    await client.delete(resources.HTTP_ROUTES, "broken", "default")


async def test_what_nginx_refuses_leaves_traffic_alone_and_is_shown_in_its_words(
    client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    snippet = {
        "apiVersion": "gateway.nginx.org/v1alpha1",
        "kind": "SnippetsFilter",
        "metadata": {"name": "bad", "namespace": "default"},
        "spec": {"snippets": [{"context": "http.server.location", "value": "no_such_thing on;"}]},
    }
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "bad"}
    filters = [{"type": "ExtensionRef", "extensionRef": reference}]
    async with traffic(where) as answers:
        await apply(client, [snippet, route("bad", "/bad", filters=filters)])
        refused = await holds(client, "Gateway", "web", "Programmed", "False")
        assert refused["reason"] == "Invalid"
        assert 'unknown directive "no_such_thing"' in refused["message"]
        await client.delete(resources.HTTP_ROUTES, "bad", "default")
        await holds(client, "Gateway", "web", "Programmed")
    assert answers.keys() == {"200"}
