"""Fetches what objects refer to by URL, and keeps it fresh: keys that tokens are signed with."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Iterable

import aiohttp
import structlog

from gatehouse.compiler.frontends.gateway_api import Fetch, Fetched

log = structlog.get_logger("gatehouse.fetching")

MAX_BYTES = 1 << 20
"""Bytes that are taken of an answer."""

TIMEOUT = 10.0
"""Seconds for one fetch."""

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds before a failed fetch is tried again; doubles from the first to the last."""

OnFetched = Callable[[Fetch, Fetched | None], None]


class Fetcher:
    """Keeps everything that is wanted; tells ``on_fetched`` of each result that is another one.

    What was fetched once stays when a later fetch fails: a server that is away for a while must
    not lock everybody out.
    """

    def __init__(self, on_fetched: OnFetched) -> None:
        self._on_fetched = on_fetched
        self._tasks: dict[Fetch, asyncio.Task[None]] = {}

    def want(self, fetches: Iterable[Fetch]) -> None:
        """Fetch these from now on, and nothing else."""
        wanted = set(fetches)
        for fetch in self._tasks.keys() - wanted:
            self._tasks.pop(fetch).cancel()
            if not any(other.key == fetch.key for other in wanted):
                self._on_fetched(fetch, None)
        for fetch in wanted - self._tasks.keys():
            self._tasks[fetch] = asyncio.create_task(_PeriodicFetch(fetch, self._on_fetched).run())

    async def close(self) -> None:
        """Stop fetching."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _PeriodicFetch:
    """Keeps one thing fresh."""

    def __init__(self, fetch: Fetch, on_fetched: OnFetched) -> None:
        self._fetch = fetch
        self._on_fetched = on_fetched
        self._last: Fetched | None = None
        self._tag = ""

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                self._tell(await self._once())
                failures = 0
                delay = self._fetch.every
            except (aiohttp.ClientError, ssl.SSLError, OSError, TimeoutError, ValueError) as error:
                failures += 1
                delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** (failures - 1))
                problem = str(error) or type(error).__name__
                log.warning("not fetched", url=self._fetch.url, error=problem, retry_in=delay)
                if self._last is None or self._last.problem:
                    self._tell(Fetched(problem=problem))
            await asyncio.sleep(delay * random.uniform(0.9, 1.0))  # noqa: S311

    def _tell(self, found: Fetched) -> None:
        if found != self._last:
            self._last = found
            self._on_fetched(self._fetch, found)

    async def _once(self) -> Fetched:
        """Fetch once; an answer that says nothing changed gives what is known."""
        trust = ssl.create_default_context(cadata=self._fetch.trust or None)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
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
                raise ValueError(f"answered {response.status}")
            content = await response.content.read(MAX_BYTES + 1)
            while len(content) <= MAX_BYTES and not response.content.at_eof():
                content += await response.content.read(MAX_BYTES + 1 - len(content))
            if len(content) > MAX_BYTES:
                raise ValueError(f"answered more than {MAX_BYTES} bytes")
            self._tag = response.headers.get("ETag", "")
            return Fetched(content)
