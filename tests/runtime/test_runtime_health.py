"""Health and metrics endpoints."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import aiohttp
import pytest

from fakes.loopback import free_port
from gatehouse.runtime import prometheus
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import Sample

HOST = "127.0.0.1"


async def page() -> bytes:
    return prometheus.format_samples([Sample("a_up", "1 if it runs.", 1)], {"pod": 'a"b'}).encode()


@contextlib.asynccontextmanager
async def serving(reason: str = "", without: Sequence[str] = ()) -> AsyncIterator[str]:
    server, port = HealthServer(lambda: reason, page, lambda: without), free_port()
    await server.start(f"{HOST}:{port}")
    try:
        yield f"http://{HOST}:{port}"
    finally:
        await server.stop()


async def ask(url: str, method: str = "GET") -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.request(method, url) as response:
        return response.status, response.headers["Content-Type"], await response.text()


@pytest.mark.parametrize(
    ("reason", "without", "expected"),
    [
        ("", (), (200, "ok\n")),
        ("starting", (), (503, "starting\n")),
        ("", ("a", "b"), (200, "ok\nwithout a\nwithout b\n")),
        ("starting", ("a",), (503, "starting\nwithout a\n")),
    ],
)
async def test_readyz_names_reason_and_missing_items(
    reason: str, without: Sequence[str], expected: tuple[int, str]
) -> None:
    async with serving(reason, without) as url:
        status, kind, text = await ask(f"{url}/readyz")
        assert (status, text) == expected
        assert kind == "text/plain; charset=utf-8"
        assert await ask(f"{url}/livez") == (200, kind, "ok\n")


async def test_metrics_page_has_content_type_of_prometheus() -> None:
    async with serving() as url:
        assert await ask(f"{url}/metrics?name=x") == (
            200,
            "text/plain; version=0.0.4; charset=utf-8",
            '# HELP a_up 1 if it runs.\n# TYPE a_up gauge\na_up{pod="a\\"b"} 1.0\n',
        )


async def test_other_paths_and_methods_are_rejected() -> None:
    async with serving() as url:
        assert (await ask(f"{url}/"))[0] == 404
        assert (await ask(f"{url}/livez", "POST"))[0] == 405
        status, _, text = await ask(f"{url}/livez", "HEAD")
        assert (status, text) == (200, "")


@pytest.mark.parametrize("address", ["", "localhost", "localhost:http"])
async def test_malformed_address_is_rejected(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        await HealthServer(lambda: "", page).start(address)
