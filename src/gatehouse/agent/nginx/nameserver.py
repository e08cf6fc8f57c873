"""Name server from which a running NGINX gets its endpoints.

NGINX repeats the SRV query of an upstream one second after each response. A response that NGINX
already has is delayed until the endpoints change, at most `MAX_DELAY_SECONDS`. So a change reaches
NGINX at once, and NGINX rarely queries otherwise.

The server listens on a loopback address, answers for its own zone, and forwards nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import cast

import structlog

from gatehouse.agent.nginx import dns_messages
from gatehouse.dataplane.endpoints import Endpoints

log = structlog.get_logger("gatehouse.agent")

HOST = "127.0.0.1"
MAX_DELAY_SECONDS = 4.0
"""Maximum delay in seconds of an unchanged response. NGINX repeats its query after five."""

ADDRESS_QUERY_SECONDS = 0.05
"""Time in seconds for NGINX to query the addresses of new names: 2 ms measured."""

RECEIVE_BYTES = 4 << 20
"""Receive buffer in bytes.

NGINX may query thousands of names at once and repeats a lost query after 5 s.
"""

MAX_CLIENTS = 16
"""Maximum number of clients remembered for a name. A reload adds clients, and old ones linger."""

MAX_SOCKETS = 256
"""Maximum number of sockets whose responses have a rate limit. A worker has one."""

MAX_STREAMS, STREAM_SECONDS = 64, 10.0
"""Maximum number of TCP connections, and the timeout of one in seconds.

Every process of the machine can connect. A worker opens one connection for each large response.
"""

BURST, PACE = 100, 0.05
"""Maximum number of responses to one client per interval, and the interval in seconds.

NGINX sends all queries before it reads any response (0.1 s for 5,000 names), and its socket buffer
holds 277 responses by default. It repeats lost queries after 5 s.
"""

_Respond = Callable[[bytes], None]


class _Client:
    """State of one client, that is one worker's socket, for one name."""

    def __init__(self) -> None:
        self.sent_version = -1
        self.query_count = 0
        """Number of distinct queries. A repeated query does not count."""
        self.query_id = b""
        """ID of the last query."""
        self.delayed: asyncio.TimerHandle | None = None
        """Timer of the delayed response, or None if none is delayed."""
        self.unanswered = False
        """True if the last query is unanswered."""
        self.send: Callable[[], None] = lambda: None

    def send_delayed(self) -> None:
        """Send a delayed response now."""
        if self.delayed is not None:
            self.delayed.cancel()
            self.delayed = None
            self.send()


class _RateLimit:
    """Rate limit of the responses to one client, so that its socket buffer does not overflow."""

    def __init__(self) -> None:
        self._since, self._sent = 0.0, 0
        self._queue: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def send(self, respond: Callable[[], None]) -> None:
        """Send now, or in turn when the limit allows it."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= PACE:
            self._since, self._sent = now, 0
        if self._timer is None and self._sent < BURST:
            self._sent += 1
            respond()
            return
        self._queue.append(respond)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PACE, self._next)

    def _next(self) -> None:
        """Send the next burst. The interval starts now, however late this call is."""
        self._timer = None
        self._since, self._sent = asyncio.get_running_loop().time(), 0
        while self._queue and self._sent < BURST:
            self._sent += 1
            self._queue.popleft()()
        if self._queue:
            self._timer = asyncio.get_running_loop().call_later(PACE, self._next)

    def stop(self) -> None:
        """Drop what was not sent."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()


class _Name:
    def __init__(self, name: str) -> None:
        self._question = dns_messages.encode_srv_query(name)
        self.key = self._question.to_wire()[12:]
        self.endpoints: Endpoints | None = None
        self.version = 0
        self.clients: dict[object, _Client] = {}
        self.datagram = self.stream = b""

    def set(self, endpoints: Endpoints) -> None:
        if endpoints != self.endpoints:
            self.endpoints = endpoints
            self.version += 1
            self.datagram, self.stream = dns_messages.encode_srv_response(self._question, endpoints)

    def client(self, source: object) -> _Client:
        known = self.clients.get(source)
        if known is None:
            while len(self.clients) >= MAX_CLIENTS:
                del self.clients[next(iter(self.clients))]
            known = self.clients[source] = _Client()
        return known


class Nameserver:
    """DNS server for the published endpoints."""

    def __init__(self) -> None:
        self.port = 0
        """Port it listens on. 0: not started."""
        self.queries = 0
        self._names: dict[str, _Name] = {}
        self._by_question: dict[bytes, _Name] = {}
        self._old_clients: frozenset[object] = frozenset()
        self._response_sent = asyncio.Event()
        self._limits: dict[object, _RateLimit] = {}
        self._datagrams: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._streams: dict[asyncio.StreamWriter, None] = {}
        """Open TCP connections, oldest first."""

    async def start(self, port: int) -> None:
        """Listen on `port`, or on another port if it is not available. Raises OSError."""
        # A port that is free for UDP may be in use for TCP.
        for candidate in (port, *[0] * 10):
            try:
                await self._listen(candidate)
            except OSError as error:
                failure = error
            else:
                return
        raise failure

    async def _listen(self, port: int) -> None:
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            datagrams.setblocking(False)
            datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            datagrams.bind((HOST, port))
            number: int = datagrams.getsockname()[1]
            self._server = await asyncio.start_server(self._stream, HOST, number)
        except OSError:
            datagrams.close()
            raise
        asyncio.get_running_loop().add_reader(datagrams, self._receive, datagrams)
        self._datagrams, self.port = datagrams, number

    def _receive(self, datagrams: socket.socket) -> None:
        # NGINX repeats a lost query. A client may be gone.
        with contextlib.suppress(OSError):
            for _ in range(64):
                data, source = datagrams.recvfrom(dns_messages.DATAGRAM_BYTES)
                self.handle_query(data, source, functools.partial(_send, datagrams, source))

    def stop(self) -> None:
        """Stop answering."""
        for name in self._names.values():
            for client in name.clients.values():
                if client.delayed is not None:
                    client.delayed.cancel()
        for limit in self._limits.values():
            limit.stop()
        if self._datagrams is not None:
            asyncio.get_running_loop().remove_reader(self._datagrams)
            self._datagrams.close()
        if self._server is not None:
            self._server.close()
        for writer in self._streams:
            writer.close()

    def publish(self, endpoints: Mapping[str, Endpoints], *, only: bool = True) -> None:
        """Answer with these endpoints from now on. Without `only`, keep the other known names."""
        if only:
            for name in self._names.keys() - endpoints.keys():
                del self._by_question[self._names.pop(name).key]
        for name, servers in endpoints.items():
            known = self._names.get(name)
            if known is None:
                known = self._names[name] = _Name(name)
                self._by_question[known.key] = known
            known.set(servers)
            for client in list(known.clients.values()):
                if client.sent_version != known.version:
                    client.send_delayed()

    def published(self) -> dict[str, Endpoints]:
        """Return the published endpoints by name."""
        return {name: known.endpoints or () for name, known in self._names.items()}

    def workers_replaced(self) -> None:
        """Record that new workers took over. Later queries of the old ones no longer count."""
        self._old_clients = frozenset(
            source for name in self._names.values() for source in name.clients
        )  # fmt: skip
        self._limits = {
            source: self._limits[source] for source in self._old_clients & self._limits.keys()
        }

    def workers_retained(self) -> None:
        """Record that the old workers stay because the reload failed."""
        self._old_clients = frozenset()

    def is_resolved(self, name: str) -> bool:
        """Return whether NGINX has the endpoints of a name.

        A client that queries again has processed the first response.
        """
        known = self._names.get(name)
        return known is not None and any(
            client.query_count > 1
            for source, client in known.clients.items()
            if source not in self._old_clients
        )  # fmt: skip

    async def wait_resolved(self, names: Collection[str], seconds: float) -> bool:
        """Wait at most `seconds` until NGINX has the current endpoints of `names`.

        Returns whether it has.
        """
        if not names:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(self._is_queried(self._names[name]) for name in names):
                    self._response_sent.clear()
                    await self._response_sent.wait()
            await asyncio.sleep(ADDRESS_QUERY_SECONDS)
            return True
        return False

    def _is_queried(self, name: _Name) -> bool:
        return any(
            client.sent_version == name.version
            for source, client in name.clients.items()
            if source not in self._old_clients
        )

    def handle_query(self, data: bytes, source: object, respond: _Respond) -> None:
        """Handle a query. With `source` None, respond at once without tracking the client."""
        self.queries += 1
        name = self._by_question.get(data[12:])
        if name is None:
            response = dns_messages.encode_default_response(data)
            if response:
                respond(response)
            return
        if source is None:
            respond(data[:2] + name.stream[2:])
            return
        client = name.client(source)
        if client.delayed is not None:
            client.delayed.cancel()
            client.delayed = None
        elif client.query_id != data[:2]:
            client.query_count += 1
        elif not client.unanswered:
            # The response was lost.
            client.sent_version = -1
        client.query_id, client.unanswered = data[:2], True

        def send() -> None:
            if client.unanswered and client.query_id == data[:2]:
                client.unanswered, client.sent_version = False, name.version
                respond(data[:2] + name.datagram[2:])
                self._response_sent.set()

        def send_in_turn() -> None:
            client.delayed = None
            self._limit(source).send(send)

        client.send = send_in_turn
        if client.sent_version == name.version:
            client.delayed = asyncio.get_running_loop().call_later(MAX_DELAY_SECONDS, send_in_turn)
        else:
            send_in_turn()

    def _limit(self, source: object) -> _RateLimit:
        limit = self._limits.get(source)
        if limit is None:
            if len(self._limits) >= MAX_SOCKETS:
                self._limits.pop(next(iter(self._limits))).stop()
            limit = self._limits[source] = _RateLimit()
        return limit

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def respond(data: bytes) -> None:
            writer.write(struct.pack("!H", len(data)) + data)

        self._streams[writer] = None
        if len(self._streams) > MAX_STREAMS:
            oldest = next(iter(self._streams))
            del self._streams[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(STREAM_SECONDS):
                while True:
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    self.handle_query(await reader.readexactly(length), None, respond)
                    await writer.drain()
        except TimeoutError:
            # A client that reads nothing would delay an orderly close.
            writer.transport.abort()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._streams.pop(writer, None)
            writer.close()


def _send(datagrams: socket.socket, source: object, response: bytes) -> None:
    with contextlib.suppress(OSError):
        datagrams.sendto(response, cast(tuple[str, int], source))
