"""Requests to an Envoy under an agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp

from fakes import patience
from fakes.envoy_running import (
    get,
)
from fakes.patience import until


async def answers(port: int, text: str) -> None:
    """Wait until `port` responds, and check the response."""
    async with patience.limit():
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                assert await get(port) == (200, text)
                return
            await patience.pause()


class Traffic:
    """Requests without pause over keep-alive connections."""

    def __init__(self, port: int) -> None:
        self.count = 0
        self.lost: list[str] = []
        self._port = port
        self._done = False

    async def _client(self) -> None:
        async with aiohttp.ClientSession() as session:
            while not self._done:
                try:
                    # POST, since clients silently repeat a GET that failed on a reused connection.
                    async with session.post(f"http://127.0.0.1:{self._port}/") as response:
                        self.count += 1
                        if response.status != 200:
                            self.lost.append(str(response.status))
                except aiohttp.ClientError as error:
                    self.lost.append(repr(error))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Traffic]:
        clients = [asyncio.create_task(self._client()) for _ in range(8)]
        try:
            yield self
        finally:
            self._done = True
            await asyncio.gather(*clients)

    async def more(self) -> None:
        """Wait until many more requests have succeeded."""
        target = self.count + 200
        await until(lambda: self.count >= target)
