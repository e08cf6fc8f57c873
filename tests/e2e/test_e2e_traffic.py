"""`gatehouse up` as users have it: real processes, NGINX and clients."""

from __future__ import annotations

import itertools
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
    until,
)
from gatehouse.apis import resources
from gatehouse.kube import client as kube

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


async def test_failed_request_is_retried_after_a_pause(client: kube.Client, backends: None) -> None:
    seen: list[tuple[float, str, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((time.monotonic(), request.raw_path, await request.read()))
        return web.Response(status=200 if len(seen) > 2 else 503)

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
    moments = [moment for moment, _, _ in seen]
    assert [(path, body) for _, path, body in seen] == [("/again/a%2Fb?x=1", b"body")] * 3
    assert all(later - before >= 0.15 for before, later in itertools.pairwise(moments))
