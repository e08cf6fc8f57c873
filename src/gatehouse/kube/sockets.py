"""Sockets to an API server, whose end a pool of connections can wait for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from collections.abc import Callable

import aiohttp

CLOSE_SECONDS = 5.0
"""Limit in seconds of the wait for transports that ended sockets close."""


class Sockets:
    """The open sockets of one pool of connections: a socket factory of aiohttp.

    aiohttp forgets a connection when it begins to close it. Over TLS its transport then waits up to
    30 s for the answer of the server, which may never come.
    """

    def __init__(self) -> None:
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._all_closed = asyncio.Event()

    def __call__(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Create a socket with TCP keep-alive, which detects a lost peer within a minute.

        A watch may be silent for minutes, so a read timeout cannot detect a dead connection.
        """
        family, kind, protocol, _, _ = address
        result = _Socket(family, kind, protocol, on_close=self._closed)
        self._open.add(result)
        result.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        result.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            # Not every system has these options; defaults of hours are better than nothing.
            if hasattr(socket, option):
                result.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return result

    def _closed(self, closed: socket.socket) -> None:
        self._open.discard(closed)
        if not self._open:
            self._all_closed.set()

    async def close(self) -> None:
        """End all connections, whatever their peers do, and wait until transports close them."""
        self._all_closed.clear()
        for opened in [*self._open]:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        if self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._all_closed.wait()


class _Socket(socket.socket):
    """A socket that reports that it is closed, which its transport does last of all."""

    def __init__(
        self, family: int, kind: int, protocol: int, *, on_close: Callable[[socket.socket], None]
    ) -> None:
        super().__init__(family, kind, protocol)
        self._on_close = on_close

    def close(self) -> None:
        super().close()
        self._on_close(self)

    def detach(self) -> int:
        # uvloop's transports close the descriptor of a socket that they have detached.
        descriptor = super().detach()
        self._on_close(self)
        return descriptor
