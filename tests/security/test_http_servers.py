"""Attacks on the small HTTP servers: health endpoints of all processes, and those of sidecars.

A client without credentials keeps connections open, or sends compressed bodies.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gzip
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from fakes.loopback import free_port
from fakes.patience import SECONDS, limit
from gatehouse.console import server as console
from gatehouse.runtime import health
from gatehouse.sidecars.authenticator import server as authenticator
from gatehouse.sidecars.reviewer import server as reviewer
from kube_base.runtime import limited_http
from kube_base.runtime.limited_http import LimitedHttpServer


async def handle(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=await request.read())


def application_runner() -> web.BaseRunner:
    application = web.Application()
    application.router.add_post("/", handle)
    return limited_http.LimitedAppRunner(application)


RUNNERS = (lambda: web.ServerRunner(LimitedHttpServer(handle)), application_runner)


@pytest_asyncio.fixture(params=RUNNERS, ids=["server", "application"])
async def limited(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    runner = request.param()
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "socket").start()
    try:
        yield tmp_path / "socket"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: "])
async def test_late_request_head_closes_the_connection(
    limited: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(limited_http, "HEAD_SECONDS", 0.2)
    async with limit():
        reader, writer = await asyncio.open_unix_connection(limited)
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_compressed_bodies_are_not_inflated(limited: Path) -> None:
    body = gzip.compress(b"x" * 1_000_000)
    connector = aiohttp.UnixConnector(str(limited))
    headers = {"Content-Encoding": "gzip"}
    async with (
        aiohttp.ClientSession("http://a", connector=connector) as http,
        http.post("/", data=body, headers=headers) as response,
    ):
        assert await response.read() == body


@pytest.mark.parametrize("module", [authenticator, reviewer, console])
def test_servers_have_the_limits(module: ModuleType) -> None:
    """A server of aiohttp itself would have none."""
    names = {
        node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
    }
    assert names & {"LimitedHttpServer", "LimitedAppRunner"}
    assert not names & {"web.Server", "web.AppRunner"}


async def test_silent_connections_do_not_stop_health_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A probe that fails would restart the process."""
    # They end for another reason than their time.
    monkeypatch.setattr(health, "_REQUEST_SECONDS", 10 * SECONDS)

    async def page() -> bytes:
        return b""

    server, port = health.HealthServer(lambda: "", page), free_port()
    await server.start(f"127.0.0.1:{port}")
    flood = [
        await asyncio.open_connection("127.0.0.1", port) for _ in range(health.MAX_CONNECTIONS + 50)
    ]
    async with (
        limit(),
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}/livez") as response,
    ):
        assert response.status == 200
    async with limit():
        with contextlib.suppress(ConnectionError):
            assert await flood[0][0].read() == b""
    await server.stop()
    async with limit():
        for reader, writer in flood:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
