"""A network that can be bad: a TCP proxy in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

from fakes import patience

PIECE = 4096
LATE = 1.0
"""Seconds that a slow line makes up for."""

SLOW_BUFFER = 32 << 10
"""Bytes that a slow line holds, as a cheap modem does."""


class FaultyProxy:
    """A TCP proxy to ``port`` with configurable faults."""

    def __init__(self, port: int) -> None:
        self.port = 0
        """Port of the proxy."""
        self.connections = 0
        """Number of connections so far."""
        self.received = 0
        """Bytes that came from the server and were carried on."""
        self.rate = 0.0
        """Bytes a second that one connection carries from the server; 0: any. Best set before."""
        self.cut_after: int | None = None
        """Bytes from the server after which one connection is reset; once."""
        self.stall_after: int | None = None
        """Bytes from the server after which one connection carries nothing more, in neither
        direction, and stays open; once."""
        self._target = port
        self._stalled = asyncio.Event()
        self.stalls = 0
        """Directions of connections that stalled."""
        self._black_hole = False
        self._carried: set[asyncio.Task[None]] = set()

    def stall(self) -> None:
        """Have every open connection carry nothing more, and every new one nothing at all."""
        self._black_hole = True

    def recover(self) -> None:
        """Carry new connections again; those that stalled never go on."""
        self._black_hole = False

    def cut(self) -> None:
        """Reset every connection at both ends, also one that stalled or is being opened."""
        for task in list(self._carried):
            task.cancel()

    @property
    def open(self) -> int:
        """Connections from clients that are not closed."""
        return len(self._carried)

    async def stalled(self) -> None:
        """Wait until ``stall_after`` came true."""
        async with patience.limit():
            await self._stalled.wait()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self.connections += 1
        self._carried.add(task)
        try:
            if self._black_hole:
                await asyncio.Event().wait()
            upstream_reader, upstream = await self._connect()
            try:
                await _Line(self).run((reader, upstream), (upstream_reader, writer))
            finally:
                _reset(upstream)
        except OSError:
            pass
        finally:
            self._carried.discard(task)
            _reset(writer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with contextlib.ExitStack() as stack:
            connected = stack.enter_context(socket.socket())
            connected.setblocking(False)
            if self.rate:
                # Else the kernel holds minutes of a slow line's bytes, and the line looks fast.
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER)
                # Segments of this machine's own are larger than that buffer, and would stall.
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
            target = ("127.0.0.1", self._target)
            await asyncio.get_running_loop().sock_connect(connected, target)
            streams = await asyncio.open_connection(sock=connected, limit=PIECE)
            stack.pop_all()
        return streams

    def spend(self, count: int) -> str:
        """Count bytes that a server sent. Return the fault of their connection, if any."""
        self.received += count
        for fate in ("cut", "stall"):
            left = getattr(self, f"{fate}_after")
            if left is not None:
                left -= count
                setattr(self, f"{fate}_after", left if left > 0 else None)
                if left <= 0:
                    return fate
        return "stall" if self._black_hole else ""

    def note_stalled(self) -> None:
        """Count it, and tell who waits for it."""
        self.stalls += 1
        self._stalled.set()

    @property
    def black_hole(self) -> bool:
        """Return whether the proxy drops all data."""
        return self._black_hole


class _Line:
    """Both directions of one connection."""

    def __init__(self, proxy: FaultyProxy) -> None:
        self._proxy = proxy
        self._dead = False

    async def run(
        self,
        up: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        down: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        tasks = [
            asyncio.create_task(self._pump(*up, from_server=False)),
            asyncio.create_task(self._pump(*down, from_server=True)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_server: bool
    ) -> None:
        proxy, free_at = self._proxy, 0.0
        while data := await reader.read(PIECE):
            fate = proxy.spend(len(data)) if from_server else ""
            if fate == "cut":
                return
            if fate == "stall" or self._dead or proxy.black_hole:
                self._dead = True
                proxy.note_stalled()
                # Not even the end of the other side is carried on: that is what half-open means.
                await asyncio.Event().wait()
            if from_server and proxy.rate:
                # Where sleeps last too long on a busy machine, the line is as fast nevertheless.
                free_at = max(free_at, time.monotonic() - LATE) + len(data) / proxy.rate
                await asyncio.sleep(free_at - time.monotonic())
            writer.write(data)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.transport.abort()


@contextlib.asynccontextmanager
async def cutting_proxy(port: int) -> AsyncIterator[FaultyProxy]:
    """Run one in front of ``port`` of this machine."""
    proxy = FaultyProxy(port)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(proxy.carry(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=PIECE)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
