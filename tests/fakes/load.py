"""Clients that ask one NGINX all the time, and what they were answered."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp


class Load:
    """Half of the clients keep their connection, half make a new one for each request.

    They post: a GET that failed on a kept connection would silently be repeated.
    """

    def __init__(self, port: int, clients: int = 4, host: str = "127.0.0.1") -> None:
        self.failed: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        """Number of responses by text."""
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

    async def flows(self, count: int = 20) -> None:
        """Wait until so many more were answered, and look that none failed so far."""
        wanted = self.answered.total() + count
        async with asyncio.timeout(30):
            while self.answered.total() < wanted:
                assert not self.failed, self.failed
                await asyncio.sleep(0.01)
        assert not self.failed, self.failed

    async def _client(self, *, close: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=close)
        async with aiohttp.ClientSession(connector=connector) as session:
            while not self._done:
                try:
                    async with session.post(self._url, data=b"x") as response:
                        text = await response.text()
                        if response.status == 200:
                            self.answered[text] += 1
                        else:
                            self.failed[f"{response.status} {text[:60]}"] += 1
                except (aiohttp.ClientError, TimeoutError) as error:
                    self.failed[repr(error)] += 1
                # Leaves a busy machine some time for whom this is about.
                await asyncio.sleep(0.005)
