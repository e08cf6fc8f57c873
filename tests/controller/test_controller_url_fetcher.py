"""Periodic fetches of URLs, which keep the last result when a fetch fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.key_server import KeyServer, key_server
from gatehouse.compiler.frontends.gateway_api import Fetch, Fetched
from gatehouse.controller import url_fetcher
from gatehouse.controller.url_fetcher import MAX_BYTES, Fetcher
from gatehouse.runtime.backoff import BackoffPolicy


class ResultRecorder:
    """Results reported by a fetcher, with a way to wait for them."""

    def __init__(self) -> None:
        self.all: list[tuple[Fetch, Fetched | None]] = []
        self._news = asyncio.Event()

    def __call__(self, fetch: Fetch, found: Fetched | None) -> None:
        self.all.append((fetch, found))
        self._news.set()

    async def next(self) -> Fetched | None:
        async with asyncio.timeout(10):
            await self._news.wait()
        self._news.clear()
        return self.all[-1][1]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KeyServer]:
    async with key_server(tmp_path / "pki") as found:
        yield found


@pytest.fixture
async def told() -> ResultRecorder:
    return ResultRecorder()


@pytest.fixture
async def fetcher(told: ResultRecorder, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fetcher]:
    monkeypatch.setattr(url_fetcher, "RETRIES", BackoffPolicy(first=0.01, maximum=60.0))
    found = Fetcher(told)
    yield found
    await found.close()


async def asked(server: KeyServer, more: int) -> None:
    wanted = len(server.asked) + more
    async with asyncio.timeout(10):
        while len(server.asked) < wanted:
            await asyncio.sleep(0.01)


async def test_fetcher_reports_document_again_only_when_it_changed(
    server: KeyServer, fetcher: Fetcher, told: ResultRecorder
) -> None:
    server.serve(b"first")
    fetcher.set_desired([Fetch(server.url, server.authority, every=0.05)])
    assert await told.next() == Fetched(server.body)
    await asked(server, 3)
    assert len(told.all) == 1
    assert [status for status, _ in server.asked[:3]] == [200, 304, 304]
    server.serve(b"second")
    assert await told.next() == Fetched(server.body)


async def test_fetched_document_stays_while_server_is_unavailable(
    server: KeyServer, fetcher: Fetcher, told: ResultRecorder
) -> None:
    server.serve(b"first")
    fetcher.set_desired([Fetch(server.url, server.authority, every=0.02)])
    first = await told.next()
    server.status = 503
    await asked(server, 3)
    assert told.all[-1][1] is first
    server.serve(b"second")
    server.status = 200
    assert await told.next() == Fetched(server.body)


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_failed_fetch_is_reported_and_retried(
    status: int, server: KeyServer, fetcher: Fetcher, told: ResultRecorder
) -> None:
    server.status = status
    fetcher.set_desired([Fetch(server.url, server.authority)])
    assert await told.next() == Fetched(problem=f"HTTP status {status}")
    server.serve(b"later")
    server.status = 200
    assert await told.next() == Fetched(server.body)


async def test_oversized_response_is_rejected(
    server: KeyServer, fetcher: Fetcher, told: ResultRecorder
) -> None:
    server.body = b"x" * (MAX_BYTES + 1)
    fetcher.set_desired([Fetch(server.url, server.authority)])
    assert await told.next() == Fetched(problem=f"response is larger than {MAX_BYTES} bytes")


async def test_fetcher_rejects_server_with_untrusted_certificate(
    server: KeyServer, fetcher: Fetcher, told: ResultRecorder
) -> None:
    server.serve(b"first")
    fetcher.set_desired([Fetch(server.url)])
    found = await told.next()
    assert found is not None
    assert "certificate" in found.problem
    assert server.asked == []


async def test_fetcher_drops_urls_that_are_no_longer_desired(
    server: KeyServer, fetcher: Fetcher, told: ResultRecorder
) -> None:
    server.serve(b"first")
    often, seldom = (Fetch(server.url, server.authority, every) for every in (0.05, 60.0))
    fetcher.set_desired([often])
    await told.next()
    fetcher.set_desired([seldom])
    assert await told.next() == Fetched(server.body)
    fetcher.set_desired([])
    assert await told.next() is None
    before = len(server.asked)
    await asyncio.sleep(0.2)
    assert len(server.asked) == before
