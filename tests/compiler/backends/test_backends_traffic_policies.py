"""TrafficPolicies as traffic meets them, on each proxy."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import aiohttp
import pytest

from differential.proxies import PORT, Runner
from fakes.envoy_serving import Answer, listening
from fakes.served_objects import RUNNERS
from fakes.specified_objects import CLASS, route, service, serving_objects

RULES = "- backendRefs: [{name: a, port: 80}]"
TO_ROUTE = "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}"
TO_GATEWAY = "{group: gateway.networking.k8s.io, kind: Gateway, name: gw}"


def policy(fields: str, target: str = TO_ROUTE, name: str = "p") -> str:
    return f"""
apiVersion: gatehouse.dev/v1alpha1
kind: TrafficPolicy
metadata: {{name: {name}}}
spec:
  targetRefs: [{target}]
  {fields}
"""


def text_backend(types: dict[str, tuple[str, int]]) -> Answer:
    """Return a backend whose response has the type and length that its path names."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            media_type, length = types[head.split()[1].decode()]
            fields = f"content-type: {media_type}\r\ncontent-length: {length}"
            writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{'x' * length}".encode())
            await writer.drain()

    return answer


RESPONSES = {
    "/long": ("application/json; charset=utf-8", 200),
    "/html": ("text/html", 200),
    "/short": ("application/json", 99),
    "/image": ("image/png", 200),
}
COMPRESSION = "compression: {mode: Enabled, types: [application/json], minLength: 100}"
GZIP_PARAMETERS = """
apiVersion: gatehouse.dev/v1alpha1
kind: GatewayParameters
metadata: {name: p}
spec: {compression: {type: gzip, minLength: 10, mimeTypes: [image/png], gzip: {vary: true}}}
"""


async def compressed(address: str, path: str, coding: str = "gzip") -> bool:
    """Return whether a client that accepts a coding gets the response compressed, and check it."""
    headers = {"Accept-Encoding": coding}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(f"http://{address}:{PORT}{path}", headers=headers) as response,
    ):
        body, expected = await response.read(), b"x" * RESPONSES[path][1]
        assert response.status == 200
        if response.headers.get("Content-Encoding") != "gzip":
            assert body == expected
            return False
        assert gzip.decompress(body) == expected
        assert "accept-encoding" in response.headers["Vary"].lower()
        return True


@pytest.mark.process
@pytest.mark.parametrize("proxy", RUNNERS)
async def test_responses_of_the_types_are_compressed_from_the_length_on(
    proxy: Runner, tmp_path: Path
) -> None:
    async with listening(text_backend(RESPONSES)) as endpoint:
        objects = [CLASS, service("a", endpoint), route(RULES), policy(COMPRESSION)]
        async with serving_objects(proxy, tmp_path, *objects) as served:
            answers = {path: await compressed(served.address, path) for path in RESPONSES}
            assert answers == {"/long": True, "/html": True, "/short": False, "/image": False}
            assert not await compressed(served.address, "/long", coding="identity")


OF_GATEWAY = policy(COMPRESSION.replace("minLength: 100", "minLength: 201"), TO_GATEWAY, "outer")
OF_ROUTE = policy(COMPRESSION)


@pytest.mark.process
@pytest.mark.parametrize("proxy", RUNNERS)
@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param([], {"/image"}, id="parameters"),
        pytest.param([OF_GATEWAY], set(), id="policy of the Gateway"),
        pytest.param([OF_GATEWAY, OF_ROUTE], {"/long"}, id="policy of the route"),
        pytest.param([policy("compression: {mode: Disabled}")], set(), id="none at the route"),
    ],
)
async def test_compression_of_a_policy_replaces_that_of_its_gateway(
    proxy: Runner, policies: list[str], expected: set[str], tmp_path: Path
) -> None:
    reference = "{group: gatehouse.dev, kind: GatewayParameters, name: p}"
    parent = f"infrastructure: {{parametersRef: {reference}}}\n  gatewayClassName: c"
    gateway = CLASS.replace("gatewayClassName: c", parent)
    async with listening(text_backend(RESPONSES)) as endpoint:
        objects = [gateway, service("a", endpoint), route(RULES), GZIP_PARAMETERS, *policies]
        async with serving_objects(proxy, tmp_path, *objects) as served:
            for path in ("/long", "/image"):
                assert await compressed(served.address, path) == (path in expected)
