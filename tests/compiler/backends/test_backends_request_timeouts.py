"""Parts of an exchange that the timeout of a request limits, on both proxies.

HTTPRouteTimeouts.request: "This timeout is intended to cover as close to the whole request-response
transaction as possible".
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from differential.proxies import Runner
from fakes import patience
from fakes.authorized_traffic import RUNNERS, served
from fakes.durations import be_slow, pace
from fakes.envoy_serving import Answer
from fakes.one_route import BACKEND
from gatehouse.compiler.ir.gateway import GatewayConfiguration

pytestmark = [pytest.mark.process, pytest.mark.parametrize("runner", RUNNERS)]

TIMEOUT_SECONDS = 1.0
GAP_SECONDS = 0.1
PARTS = 20
"""Number of parts of a response that lasts twice the timeout."""


def rule(**fields: Any) -> dict[str, Any]:
    return {"backendRefs": [BACKEND], "timeouts": {"request": f"{TIMEOUT_SECONDS:g}s"}, **fields}


def slow(start: bytes, parts: int | None) -> Answer:
    """Return a backend that responds with a text and then with parts: None for no end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(start)
        sent = 0
        while sent != parts:
            await pace(GAP_SECONDS)
            writer.write(b"a")
            await writer.drain()
            sent += 1
        await reader.read()

    return answer


@pytest.mark.parametrize(
    "retry", [{}, {"retry": {"attempts": 1, "codes": [500]}}], ids=["no retry", "retry"]
)
async def test_header_without_end_is_504(
    runner: Runner, tmp_path: Path, retry: dict[str, Any]
) -> None:
    backend = slow(b"HTTP/1.1 200 OK\r\nX-Slow: ", None)
    async with (
        served(runner, tmp_path, 0, rule(**retry), answer=backend) as proxy,
        patience.limit(),
    ):
        assert (await proxy.send("/a"))[0] == 504


async def test_body_that_pauses_for_the_timeout_is_cut(runner: Runner, tmp_path: Path) -> None:
    backend = slow(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 1)
    async with served(runner, tmp_path, 0, rule(), answer=backend) as proxy, patience.limit():
        with pytest.raises(aiohttp.ClientPayloadError):
            await proxy.send("/a")


async def test_body_without_pause_is_cut_by_envoy_only(
    runner: Runner, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """NGINX has no limit of a whole response, as docs/reference/gateway-api-nginx.md says."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {PARTS}\r\n\r\n"
    backend = slow(head.encode(), PARTS)
    async with served(runner, tmp_path, 0, rule(), answer=backend) as proxy, patience.limit():
        if request.node.callspec.id == "nginx":
            assert (await proxy.send("/a"))[2] == b"a" * PARTS
            return
        with pytest.raises(aiohttp.ClientPayloadError):
            await proxy.send("/a")


def three_times(gateway: GatewayConfiguration) -> GatewayConfiguration:
    """Return a configuration whose clusters have each endpoint three times."""
    clusters = (
        msgspec.structs.replace(cluster, endpoints=cluster.endpoints * 3)
        for cluster in gateway.clusters
    )
    return msgspec.structs.replace(gateway, clusters=(*clusters,))


async def test_no_further_endpoint_gets_a_request_after_the_timeout(
    runner: Runner, tmp_path: Path
) -> None:
    """NGINX sends an idempotent request to another endpoint if one closes the connection."""
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        await be_slow(TIMEOUT_SECONDS * 0.7)
        writer.close()

    async with (
        served(runner, tmp_path, 0, rule(), answer=answer, change=three_times) as proxy,
        patience.limit(),
    ):
        assert (await proxy.send("/a"))[0] in (502, 503, 504)
    assert requests <= 2
