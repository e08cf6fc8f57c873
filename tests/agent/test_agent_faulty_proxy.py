"""The unreliable network of the agent tests is as its documentation says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fakes import patience
from fakes.faulty_proxy import FaultyProxy, cutting_proxy

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Ends:
    """A proxy, connections to it, and the server's ends of these."""

    def __init__(self, proxy: FaultyProxy, accepted: asyncio.Queue[Connection]) -> None:
        self.proxy = proxy
        self._accepted = accepted
        self._stack = contextlib.AsyncExitStack()

    async def connect(self) -> tuple[Connection, Connection]:
        """Return the client's and the server's end of a new connection."""
        client = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        self._stack.callback(client[1].close)
        async with patience.limit():
            server = await self._accepted.get()
        self._stack.callback(server[1].close)
        return client, server

    async def close(self) -> None:
        """Close all ends."""
        await self._stack.aclose()


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    accepted: asyncio.Queue[Connection] = asyncio.Queue()
    server = await asyncio.start_server(
        lambda reader, writer: accepted.put_nowait((reader, writer)), "127.0.0.1", 0
    )
    async with server, cutting_proxy(server.sockets[0].getsockname()[1]) as proxy:
        ends = Ends(proxy, accepted)
        yield ends
        await ends.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return what arrives until the connection ends."""
    async with patience.limit():
        with contextlib.suppress(ConnectionResetError):
            return await reader.read()
    return b""


async def test_cut_resets_both_ends_when_both_directions_stalled(ends: Ends) -> None:
    client, server = await ends.connect()
    ends.proxy.stall()
    client[1].write(b"lost")
    server[1].write(b"lost")
    await patience.until(lambda: ends.proxy.stalls == 2)
    ends.proxy.cut()
    assert await rest(client[0]) == b""
    assert await rest(server[0]) == b""
    assert ends.proxy.open == 0
