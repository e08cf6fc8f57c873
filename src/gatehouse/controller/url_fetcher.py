"""Periodic fetches of URLs that objects refer to, such as JWKS with token signing keys."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Iterable

import aiohttp
import structlog

from gatehouse.compiler.frontends.gateway_api import Fetched, UrlFetch
from kube_base.runtime.backoff import Backoff, BackoffPolicy

log = structlog.get_logger("gatehouse.fetching")

MAX_FETCHED_BYTES = 1 << 20
"""Maximum size of a response in bytes."""

_TIMEOUT_SECONDS = 10.0
"""Timeout of one fetch in seconds."""

URL_RETRIES = BackoffPolicy(first=1.0, maximum=60.0)
"""Back-off after a failed fetch."""

OnFetched = Callable[[UrlFetch, Fetched | None], None]


class UrlFetcher:
    """Fetches the desired URLs periodically and calls ``on_fetched`` with each changed result.

    A result stays valid when a later fetch fails, so that an outage of the server does not lock
    all clients out. ``on_fetched`` gets None when a fetch is not desired any longer.
    """

    def __init__(self, on_fetched: OnFetched) -> None:
        self._on_fetched = on_fetched
        self._tasks: dict[UrlFetch, asyncio.Task[None]] = {}

    def set_desired(self, fetches: Iterable[UrlFetch]) -> None:
        """Replace the set of desired fetches: start new ones, stop the others."""
        desired = set(fetches)
        for fetch in self._tasks.keys() - desired:
            self._tasks.pop(fetch).cancel()
            if not any(other.key == fetch.key for other in desired):
                self._on_fetched(fetch, None)
        for fetch in desired - self._tasks.keys():
            self._tasks[fetch] = asyncio.create_task(_PeriodicFetch(fetch, self._on_fetched).run())

    async def close(self) -> None:
        """Stop fetching."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _PeriodicFetch:
    """Periodic fetch of one URL."""

    def __init__(self, fetch: UrlFetch, on_fetched: OnFetched) -> None:
        self._fetch = fetch
        self._on_fetched = on_fetched
        self._last: Fetched | None = None
        self._tag = ""

    async def run(self) -> None:
        backoff = Backoff(URL_RETRIES)
        while True:
            try:
                self._report(await self._fetch_once())
                backoff.succeeded()
                delay = self._fetch.every
            except (aiohttp.ClientError, ssl.SSLError, OSError, TimeoutError, ValueError) as error:
                delay = backoff.failed()
                problem = str(error) or type(error).__name__
                log.warning("fetch failed", url=self._fetch.url, error=problem, retry_in=delay)
                if self._last is None or self._last.problem:
                    self._report(Fetched(problem=problem))
            await asyncio.sleep(delay * random.uniform(0.9, 1.0))  # noqa: S311

    def _report(self, result: Fetched) -> None:
        if result != self._last:
            self._last = result
            self._on_fetched(self._fetch, result)

    async def _fetch_once(self) -> Fetched:
        """Fetch once. Return the previous result on 304.

        Raises ValueError for other statuses than 200 and for a response that is too large.
        """
        trust = ssl.create_default_context(cadata=self._fetch.trust or None)
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        headers = {"If-None-Match": self._tag} if self._tag and self._last else {}
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                self._fetch.url, ssl=trust, headers=headers, allow_redirects=False
            ) as response,
        ):
            if response.status == 304 and self._last is not None:
                return self._last
            if response.status != 200:
                raise ValueError(f"HTTP status {response.status}")
            content = await response.content.read(MAX_FETCHED_BYTES + 1)
            while len(content) <= MAX_FETCHED_BYTES and not response.content.at_eof():
                content += await response.content.read(MAX_FETCHED_BYTES + 1 - len(content))
            if len(content) > MAX_FETCHED_BYTES:
                raise ValueError(f"response is larger than {MAX_FETCHED_BYTES} bytes")
            self._tag = response.headers.get("ETag", "")
            return Fetched(content)
