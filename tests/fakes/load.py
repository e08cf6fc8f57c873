"""Clients that ask one NGINX all the time, and what they were answered."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import aiohttp

from fakes import patience
from fakes.durations import pace


class Load:
    """Half of the clients keep their connection, half make a new one for each request.

    They post: a GET that failed on a kept connection would silently be repeated.
    """

    def __init__(self, port: int, clients: int = 4, host: str = "127.0.0.1") -> None:
        self.failed: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        """Number of responses by text."""
        self.longest_wait = 0.0
        """Longest time in seconds from a request to its response."""
        self._failed_at: list[float] = []
        self._url = f"http://{host}:{port}/"
        self._clients = clients
        self._done = False

    async def __aenter__(self) -> Load:
        self._tasks = [
            asyncio.create_task(self._client(close=n % 2 == 0)) for n in range(self._clients)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._done = True
        await asyncio.gather(*self._tasks)

    async def more(self, count: int) -> None:
        """Wait until so many more were answered, whatever fails."""
        target = self.answered.total() + count
        await patience.until(lambda: self.answered.total() >= target)

    async def flows(self, count: int = 20) -> None:
        """Wait until so many more were answered, and look that none failed so far."""
        target = self.answered.total() + count
        async with patience.limit():
            while self.answered.total() < target:
                assert not self.failed, self.failed
                await patience.pause()
        assert not self.failed, self.failed

    @property
    def outage(self) -> float:
        """Return the longest time in seconds from a failure to the last one of its series.

        A series ends with a second without a failure.
        """
        longest, start = 0.0, 0
        for index, moment in enumerate(self._failed_at):
            if moment - self._failed_at[max(index - 1, 0)] > 1.0:
                start = index
            longest = max(longest, moment - self._failed_at[start])
        return longest

    def __str__(self) -> str:
        """Return the numbers that a report needs."""
        failed, total = self.failed.total(), self.failed.total() + self.answered.total()
        return (
            f"{failed} of {total} requests failed, for at most {self.outage:.3f} s,"
            f" longest response {self.longest_wait:.3f} s, {dict(self.failed)}"
        )

    async def _client(self, *, close: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=close)
        async with aiohttp.ClientSession(connector=connector) as session:
            while not self._done:
                started_at = time.monotonic()
                try:
                    async with session.post(self._url, data=b"x") as response:
                        text = await response.text()
                        if response.status == 200:
                            self.answered[text] += 1
                            waited = time.monotonic() - started_at
                            self.longest_wait = max(self.longest_wait, waited)
                        else:
                            self._count(f"{response.status} {text[:60]}")
                except (aiohttp.ClientError, TimeoutError) as error:
                    self._count(type(error).__name__)
                # Leaves a busy machine some time for whom this is about.
                await pace(0.005)

    def _count(self, failure: str) -> None:
        self.failed[failure] += 1
        self._failed_at.append(time.monotonic())
