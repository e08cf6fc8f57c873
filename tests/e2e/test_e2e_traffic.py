"""`gatehouse up` as users have it: real processes, NGINX and clients."""

from __future__ import annotations

import time

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from fakes.installation import (
    HOST_NET,
    PORT,
    REVISED,
    address,
    apply,
    get,
    hello,
    holds,
    route,
)
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process


async def test_gateway_with_ready_status_serves_its_route(
    client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    await holds(client, "HTTPRoute", "app", "Accepted")
    assert where.startswith(HOST_NET)
    assert await get(where) == (200, "app")


async def test_endpoint_changes_are_served(client: kube.Client, backends: None) -> None:
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


async def test_route_to_a_missing_service_returns_500_and_others_are_served(
    client: kube.Client, backends: None
) -> None:
    await apply(client, [*hello(), route("broken", "/broken", "nowhere")])
    where = await address(client)
    condition = await holds(client, "HTTPRoute", "broken", "ResolvedRefs", "False")
    assert condition["reason"] == "BackendNotFound"
    assert "Service default/nowhere not found" in condition["message"]
    assert (await get(where, "/broken"))[0] == 500
    assert await get(where) == (200, "app")
    await client.delete(resources.HTTP_ROUTES, "broken", "default")


async def test_route_follows_the_default_scope_of_the_gateway(
    client: kube.Client, backends: None
) -> None:
    """A default Gateway "MUST claim Routes that have set spec.useDefaultGateways to a matching
    value", and one without scope "MUST NOT" (GEP-3793)."""
    mark = {"set": [{"name": "X-Backend", "value": "by default"}]}
    filters = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": mark}]
    defaulted = route("defaulted", "/defaulted", filters=filters)
    defaulted["spec"] = {"rules": defaulted["spec"]["rules"], "useDefaultGateways": "All"}
    await apply(client, [*hello(), defaulted])
    where = await address(client)
    assert await get(where, "/defaulted") == (200, "app")
    scope = {"spec": {"defaultScope": "All"}}
    await client.patch(resources.GATEWAYS, "web", scope, "default")
    await holds(client, "Gateway", "web", "DefaultGateway")
    await holds(client, "HTTPRoute", "defaulted", "Accepted")
    assert await get(where, "/defaulted") == (200, "by default")
    written = (await client.get(resources.HTTP_ROUTES, "defaulted", "default"))["metadata"]
    await client.patch(resources.GATEWAYS, "web", {"spec": {"defaultScope": "None"}}, "default")

    async def is_detached() -> bool:
        current = await client.get(resources.HTTP_ROUTES, "defaulted", "default")
        gateway = await client.get(resources.GATEWAYS, "web", "default")
        types = {condition["type"] for condition in gateway["status"]["conditions"]}
        return not current["status"]["parents"] and "DefaultGateway" not in types

    await until(is_detached)
    await until(lambda: _answers(where, "/defaulted", (200, "app")))
    detached = (await client.get(resources.HTTP_ROUTES, "defaulted", "default"))["metadata"]
    assert detached["generation"] == written["generation"]
    await client.delete(resources.HTTP_ROUTES, "defaulted", "default")


async def test_failed_request_is_retried_after_a_pause(client: kube.Client, backends: None) -> None:
    requests: list[tuple[str, bytes]] = []
    arrivals: list[float] = []
    answers: list[float] = []

    async def answer(request: web.Request) -> web.Response:
        arrivals.append(time.monotonic())
        requests.append((request.raw_path, await request.read()))
        answers.append(time.monotonic())
        return web.Response(status=200 if len(requests) > 2 else 503)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    host = f"{HOST_NET}.249"
    await web.TCPSite(runner, host, 9080).start()
    retry = {"codes": [503], "attempts": 3, "backoff": "150ms"}
    labels = {"kubernetes.io/service-name": "failing"}
    metadata = {"name": "failing", "namespace": "default"}
    slice_ = {
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"port": 9080}],
        "endpoints": [{"addresses": [host]}],
    }
    service = {"kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}
    again = route("again", "/again", "failing", retry=retry)
    try:
        await apply(client, [*hello(), service, slice_, again])
        where = await address(client)
        await holds(client, "HTTPRoute", "again", "Accepted")
        async with aiohttp.ClientSession() as session:
            url = URL(f"http://{where}:{PORT}/again/a%2Fb?x=1", encoded=True)
            async with session.post(url, data=b"body") as response:
                assert response.status == 200
    finally:
        await runner.cleanup()
    assert requests == [("/again/a%2Fb?x=1", b"body")] * 3
    # A busy machine lengthens the time from an answer to the next request. NGINX reads its clock
    # once per turn of its event loop, which can only cost a few of the 150 milliseconds.
    pauses = [arrival - answer for answer, arrival in zip(answers, arrivals[1:], strict=False)]
    assert all(pause >= 0.1 for pause in pauses)
