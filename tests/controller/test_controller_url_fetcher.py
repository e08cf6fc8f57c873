"""Periodic fetches of URLs, which keep the last result when a fetch fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes import patience
from fakes.key_server import KeyServer, key_server
from gatehouse.compiler.frontends.gateway_api import Fetched, UrlFetch
from gatehouse.controller import url_fetcher
from gatehouse.controller.url_fetcher import MAX_FETCHED_BYTES, UrlFetcher
from kube_base.runtime.backoff import BackoffPolicy


class ResultRecorder:
    """Results reported by a fetcher, with a way to wait for them."""

    def __init__(self) -> None:
        self.all: list[tuple[UrlFetch, Fetched | None]] = []
        self._news = asyncio.Event()

    def __call__(self, fetch: UrlFetch, result: Fetched | None) -> None:
        self.all.append((fetch, result))
        self._news.set()

    async def next(self) -> Fetched | None:
        async with patience.limit():
            await self._news.wait()
        self._news.clear()
        return self.all[-1][1]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KeyServer]:
    async with key_server(tmp_path / "pki") as http_server:
        yield http_server


@pytest.fixture
async def other_server(tmp_path: Path) -> AsyncIterator[KeyServer]:
    async with key_server(tmp_path / "other") as http_server:
        yield http_server


@pytest.fixture
async def recorder() -> ResultRecorder:
    return ResultRecorder()


@pytest.fixture
async def fetcher(
    recorder: ResultRecorder, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[UrlFetcher]:
    monkeypatch.setattr(url_fetcher, "URL_RETRIES", BackoffPolicy(first=0.01, maximum=60.0))
    started = UrlFetcher(recorder)
    yield started
    await started.close()


async def asked(server: KeyServer, more: int) -> None:
    target = len(server.asked) + more
    await patience.until(lambda: len(server.asked) >= target)


async def test_fetcher_reports_document_again_only_when_it_changed(
    server: KeyServer, fetcher: UrlFetcher, recorder: ResultRecorder
) -> None:
    server.serve(b"first")
    fetcher.set_desired([UrlFetch(server.url, server.authority, every=0.05)])
    assert await recorder.next() == Fetched(server.body)
    await asked(server, 3)
    assert len(recorder.all) == 1
    assert [status for status, _ in server.asked[:3]] == [200, 304, 304]
    server.serve(b"second")
    assert await recorder.next() == Fetched(server.body)


async def test_fetched_document_stays_while_server_is_unavailable(
    server: KeyServer, fetcher: UrlFetcher, recorder: ResultRecorder
) -> None:
    server.serve(b"first")
    fetcher.set_desired([UrlFetch(server.url, server.authority, every=0.02)])
    first = await recorder.next()
    server.status = 503
    await asked(server, 3)
    assert recorder.all[-1][1] is first
    server.serve(b"second")
    server.status = 200
    assert await recorder.next() == Fetched(server.body)


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_failed_fetch_is_reported_and_retried(
    status: int, server: KeyServer, fetcher: UrlFetcher, recorder: ResultRecorder
) -> None:
    server.status = status
    fetcher.set_desired([UrlFetch(server.url, server.authority)])
    assert await recorder.next() == Fetched(problem=f"HTTP status {status}")
    server.serve(b"later")
    server.status = 200
    assert await recorder.next() == Fetched(server.body)


async def test_oversized_response_is_rejected(
    server: KeyServer, fetcher: UrlFetcher, recorder: ResultRecorder
) -> None:
    server.body = b"x" * (MAX_FETCHED_BYTES + 1)
    fetcher.set_desired([UrlFetch(server.url, server.authority)])
    assert await recorder.next() == Fetched(
        problem=f"response is larger than {MAX_FETCHED_BYTES} bytes"
    )


async def test_fetcher_rejects_server_with_untrusted_certificate(
    server: KeyServer, fetcher: UrlFetcher, recorder: ResultRecorder
) -> None:
    server.serve(b"first")
    fetcher.set_desired([UrlFetch(server.url)])
    result = await recorder.next()
    assert result is not None
    assert "certificate" in result.problem
    assert server.asked == []


async def test_fetcher_drops_urls_that_are_no_longer_desired(
    server: KeyServer, other_server: KeyServer, fetcher: UrlFetcher, recorder: ResultRecorder
) -> None:
    server.serve(b"first")
    often, seldom = (UrlFetch(server.url, server.authority, every) for every in (0.05, 60.0))
    fetcher.set_desired([often])
    await recorder.next()
    fetcher.set_desired([seldom])
    assert await recorder.next() == Fetched(server.body)
    fetcher.set_desired([])
    assert await recorder.next() is None
    before = len(server.asked)
    # Another URL is fetched several times in the period of the dropped one.
    fetcher.set_desired([UrlFetch(other_server.url, other_server.authority, every=0.05)])
    await asked(other_server, 4)
    assert len(server.asked) == before
