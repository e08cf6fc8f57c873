"""Accepting connections, within limits per source address, per user and in total.

A connection that has sent nothing costs a file and a few hundred bytes: TLS starts with its first
byte. Connections without an authenticated request compete with each other only: beyond a limit,
the oldest of them is closed, so that a new client always gets its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from aiohttp import web

from kube_base.runtime import open_files
from kube_base.runtime.limited_http import LimitedHttpProtocol, LimitedHttpServer

log = structlog.get_logger("apiserver")

HANDSHAKE_SECONDS = 10.0
"""Timeout in seconds of the TLS handshake, from the acceptance of the connection."""

IDLE_CONNECTION_SECONDS = 90.0
"""Timeout in seconds of a connection between two requests, as in kube-apiserver."""

RESERVED_FILES = 256
"""Open files that connections leave for the storage, logs and connections to others."""

BACKLOG = 4096
ACCEPTS_AT_ONCE = 64
ACCEPT_PAUSE_SECONDS = 0.1
"""Pause in seconds after a failed accept."""

CONNECTION_SWEEP_SECONDS = 1.0


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Maximum numbers of connections."""

    per_source: int = 1000
    """Of one source address, without an authenticated request."""
    per_user: int = 1000
    """With requests of one user, or of the ServiceAccounts of one namespace."""


class ClientConnection:
    """One accepted connection."""

    __slots__ = ("close", "flow", "source", "started")

    def __init__(self, source: str, started: float, close: Callable[[], None]) -> None:
        self.source, self.started = source, started
        self.close = close
        """Closes the connection in its current state."""
        self.flow = ""
        """User or namespace of its first authenticated request. Empty until then."""


class ConnectionTable:
    """All connections of a server."""

    def __init__(self, limits: ConnectionLimits, total: int) -> None:
        self._limits, self._total = limits, total
        self._count = 0
        self._flows: Counter[str] = Counter()
        self._anonymous: dict[ClientConnection, None] = {}
        """Connections without an authenticated request, oldest first."""
        self._by_source: dict[str, dict[ClientConnection, None]] = {}
        self._authenticated: set[ClientConnection] = set()
        self.evicted = 0

    def __len__(self) -> int:
        return self._count

    def add(self, connection: ClientConnection) -> bool:
        """Add a connection. Return whether the limits permit it; others may have been closed."""
        known = self._by_source.get(connection.source, {})
        if len(known) >= self._limits.per_source:
            self._evict(next(iter(known)))
        if self._count >= self._total:
            if not self._anonymous:
                return False
            self._evict(next(iter(self._anonymous)))
        self._count += 1
        self._anonymous[connection] = None
        self._by_source.setdefault(connection.source, {})[connection] = None
        return True

    def authenticated(self, connection: ClientConnection, flow: str, *, exempt: bool) -> bool:
        """Record an authenticated request. Return whether the user may have this connection."""
        if connection.flow or connection not in self._anonymous:
            return True
        if not exempt and self._flows[flow] >= self._limits.per_user:
            return False
        connection.flow = flow
        self._authenticated.add(connection)
        self._flows[flow] += 1
        self._forget(connection)
        return True

    def remove(self, connection: ClientConnection) -> None:
        """Remove a closed connection. Idempotent."""
        if connection in self._anonymous:
            self._forget(connection)
        elif connection.flow:
            self._authenticated.discard(connection)
            self._flows[connection.flow] -= 1
            if not self._flows[connection.flow]:
                del self._flows[connection.flow]
            connection.flow = ""
        else:
            return
        self._count -= 1

    def evict_oldest(self) -> None:
        """Close the oldest connection without an authenticated request."""
        if self._anonymous:
            self._evict(next(iter(self._anonymous)))

    def close_all(self) -> None:
        """Close all connections."""
        for connection in (*self._anonymous, *self._authenticated):
            connection.close()

    def _evict(self, connection: ClientConnection) -> None:
        self.evicted += 1
        self.remove(connection)
        connection.close()

    def _forget(self, connection: ClientConnection) -> None:
        del self._anonymous[connection]
        known = self._by_source[connection.source]
        del known[connection]
        if not known:
            del self._by_source[connection.source]


class _TrackedProtocol(LimitedHttpProtocol):
    """HTTP over one connection of a table."""

    __slots__ = ("connection", "table")

    connection: ClientConnection | None
    table: ConnectionTable | None

    def __init__(self, manager: LimitedHttpServer, **options: object) -> None:
        super().__init__(manager, **options)
        self.connection = self.table = None

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.connection is not None and self.table is not None:
            self.table.remove(self.connection)
        super().connection_lost(exc)


def authenticated(request: web.BaseRequest, flow: str, *, exempt: bool) -> bool:
    """Record that a request is authenticated. Return whether its user may have its connection."""
    protocol = request.protocol
    if not isinstance(protocol, _TrackedProtocol):
        return True
    if protocol.connection is None or protocol.table is None:
        return True
    return protocol.table.authenticated(protocol.connection, flow, exempt=exempt)


class TlsListener:
    """Listens on one address and serves HTTP over TLS."""

    def __init__(
        self,
        runner: web.ServerRunner,
        context: ssl.SSLContext,
        limits: ConnectionLimits,
        *,
        total: int = 0,
    ) -> None:
        """`total` is the maximum number of connections. By default it follows the open files."""
        self._runner, self._context = runner, context
        if not total:
            files = open_files.raise_limit()
            total = max(files - RESERVED_FILES, files // 2)
        self.table = ConnectionTable(limits, total)
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._waiting: dict[ClientConnection, socket.socket] = {}
        """Connections that have sent nothing, oldest first."""
        self._handshakes: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen. Return the port. Raises OSError."""
        infos = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                listening = socket.socket(family, kind, protocol)
                self._sockets.append(listening)
                listening.setblocking(False)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    listening.bind((address[0], port, *address[2:]))
                except OSError as error:
                    reason = (error.strerror or "failed").lower()
                    raise OSError(error.errno, f"{address[0]}:{port}: {reason}") from error
                port = listening.getsockname()[1]
                listening.listen(BACKLOG)
        except OSError:
            self._close_sockets()
            raise
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)
        self._timer = self._loop.call_later(CONNECTION_SWEEP_SECONDS, self._sweep)
        return port

    async def close(self) -> None:
        """Stop listening and close connections that have not sent a request."""
        if self._timer is not None:
            self._timer.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        self._close_sockets()
        for connection in tuple(self._waiting):
            self._drop(connection)
        for task in tuple(self._handshakes):
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    async def abort(self) -> None:
        """End the connections whose clients have not answered the end of TLS."""
        self.table.close_all()
        # The loop closes their sockets in its next pass.
        await asyncio.sleep(0)

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connection not accepted", error=str(error))
                self.table.evict_oldest()
                self._pause(listening)
                return
            self._wait(accepted, address[0] if isinstance(address, tuple) else "")

    def _pause(self, listening: socket.socket) -> None:
        """Stop accepting for a moment: the socket stays readable while no file is free."""

        def resume() -> None:
            if listening.fileno() >= 0:
                self._loop.add_reader(listening, self._accept, listening)

        self._loop.remove_reader(listening)
        self._loop.call_later(ACCEPT_PAUSE_SECONDS, resume)

    def _wait(self, accepted: socket.socket, source: str) -> None:
        """Wait for the first byte of a connection."""
        connection = ClientConnection(source, self._loop.time(), lambda: self._drop(connection))
        if not self.table.add(connection):
            accepted.close()
            return
        accepted.setblocking(False)
        self._waiting[connection] = accepted
        self._loop.add_reader(accepted, self._begin, connection)

    def _drop(self, connection: ClientConnection) -> None:
        """Close a connection that has sent nothing."""
        self.table.remove(connection)
        accepted = self._waiting.pop(connection, None)
        if accepted is not None:
            self._loop.remove_reader(accepted)
            accepted.close()

    def _begin(self, connection: ClientConnection) -> None:
        """Start TLS."""
        accepted = self._waiting.pop(connection)
        self._loop.remove_reader(accepted)
        task = self._loop.create_task(self._serve(connection, accepted))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)
        connection.close = functools.partial(_cancel, task)

    async def _serve(self, connection: ClientConnection, accepted: socket.socket) -> None:
        remaining = connection.started + HANDSHAKE_SECONDS - self._loop.time()
        protocol: _TrackedProtocol | None = None

        def build() -> _TrackedProtocol:
            nonlocal protocol
            server = self._runner.server
            assert server is not None
            protocol = server()  # type: ignore[assignment]
            assert isinstance(protocol, _TrackedProtocol)
            protocol.connection, protocol.table = connection, self.table
            return protocol

        try:
            transport, _ = await self._loop.connect_accepted_socket(
                build,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=max(remaining, 0.1),
                ssl_shutdown_timeout=HANDSHAKE_SECONDS,
            )
        except (OSError, asyncio.CancelledError):
            # Also ssl.SSLError and time-outs. Clients without TLS are no event of the server.
            self.table.remove(connection)
            with contextlib.suppress(OSError):
                accepted.close()
            return
        connection.close = transport.abort

    def _sweep(self) -> None:
        """Close connections that have been silent for too long."""
        end = self._loop.time() - HANDSHAKE_SECONDS
        while self._waiting:
            oldest = next(iter(self._waiting))
            if oldest.started > end:
                break
            self._drop(oldest)
        self._timer = self._loop.call_later(CONNECTION_SWEEP_SECONDS, self._sweep)


def server(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], **options: object
) -> LimitedHttpServer:
    """Build the HTTP server whose connections a :class:`TlsListener` accepts."""
    return LimitedHttpServer(
        handler, protocol=_TrackedProtocol, keepalive_timeout=IDLE_CONNECTION_SECONDS, **options
    )


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
