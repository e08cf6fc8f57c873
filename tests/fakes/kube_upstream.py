"""A kube-apiserver's manners without its work: TLS, HTTP/2 and HTTP/1.1, watches, upgrades.

It answers what it saw. ``/readyz`` says whether it is ready; a request with ``watch=true`` is
answered with a line for each :meth:`Upstream.emit`; one whose path has ``slow`` waits until
:meth:`Upstream.release`; one whose path has ``abort`` is given up after its head; one whose path
has ``lost`` ends its connection without a response. See also :attr:`Upstream.refusals`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from fakes.durations import be_slow

Headers = list[tuple[str, str]]


class Upstream:
    """A server, and what it saw."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.ready = True
        self.watched = True
        """True if watch requests get streams."""
        self.seen: list[tuple[str, str, Headers]] = []
        """Method, target and headers; without those of health checks."""
        self.connections: dict[str, int] = {"h2": 0, "http/1.1": 0}
        """Made so far, without those of health checks."""
        self.busy = self.busiest = 0
        """Slow requests under way, and the most there were at a time."""
        self.probes: list[Headers] = []
        self.streams = 100
        """On one connection of HTTP/2, of those that are made from now on; with more at a time it
        ends. 100 is a kube-apiserver's default."""
        self.refusals = 0
        """Number of requests that are not answered: with ``refuse`` in the target (REFUSED_STREAM),
        or ``goaway`` (GOAWAY after the request, and the end of the connection)."""
        self.more_headers: Headers = []
        """Headers of all responses that are neither streams nor answers to health checks."""
        self._released = asyncio.Event()
        self._watches: list[asyncio.Queue[bytes]] = []
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def watches(self) -> int:
        """Return the number of open watches."""
        return len(self._watches)

    def emit(self, line: bytes) -> None:
        """Send a line to all who watch."""
        for queue in self._watches:
            queue.put_nowait(line)

    def release(self) -> None:
        """Let slow requests be answered."""
        self._released.set()
        self._released = asyncio.Event()

    async def start(
        self, context: ssl.SSLContext | None, host: str = "127.0.0.1"
    ) -> asyncio.Server:
        """Listen."""
        if context is not None:
            context.set_alpn_protocols(["h2", "http/1.1"])
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def close(self) -> None:
        """End all connections."""
        for writer in [*self._writers]:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        tls = writer.get_extra_info("ssl_object")
        protocol = (tls.selected_alpn_protocol() if tls else None) or "http/1.1"
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, h2.exceptions.ProtocolError
        ):
            if protocol == "h2":
                await _Http2(self, reader, writer).run()
            else:
                await self._http1(reader, writer)
        self._writers.discard(writer)
        writer.transport.abort()

    def note(self, method: str, target: str, headers: Headers, first: bool, protocol: str) -> bool:
        """Record a request. Return whether it is a health check."""
        if ("user-agent", "Envoy/HC") in headers:
            self.probes.append(headers)
            return True
        self.connections[protocol] += first
        self.seen.append((method, target, headers))
        return False

    async def answer(self, method: str, target: str, headers: Headers) -> tuple[int, bytes]:
        """Answer a request that ends by itself."""
        if target.endswith("/readyz"):
            return (200 if self.ready else 500), b"ok"
        if "slow" in target and self.watched:
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
            try:
                await self._released.wait()
            finally:
                self.busy -= 1
        echo = {"service": self.name, "method": method, "target": target, "headers": headers}
        return 200, json.dumps(echo).encode()

    @contextlib.contextmanager
    def watching(self) -> Any:
        """Take part in what is emitted."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watches.append(queue)
        try:
            yield queue
        finally:
            self._watches.remove(queue)

    async def _http1(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = True
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *rest = head.strip().split("\r\n")
            method, target, _ = line.split(" ")
            headers = [
                (k.lower(), v.strip()) for k, _, v in (header.partition(":") for header in rest)
            ]
            known = dict(headers)
            probe = self.note(method, target, headers, first, "http/1.1")
            first = first and probe
            await reader.readexactly(int(known.get("content-length", "0")))
            if "lost" in target:
                return
            if "upgrade" in known and "exec" in target:
                writer.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                    b"Upgrade: " + known["upgrade"].encode() + b"\r\n\r\n"
                    + self.name.encode() + b"\n"
                )  # fmt: skip
                while (data := await reader.read(4096)) and b"abort" not in data:
                    writer.write(data)
                return
            status, body = await self.answer(method, target, headers)
            if "upgrade" in known and "refused" in target:
                status = 403
            more = () if probe else self.more_headers
            lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in more)]
            lines += [f"Content-Length: {len(body)}", "", ""]
            writer.write("\r\n".join(lines).encode())
            writer.write(b"" if method == "HEAD" else body)


class _Http2:
    def __init__(
        self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._upstream, self._reader, self._writer = upstream, reader, writer
        config = h2.config.H2Configuration(client_side=False, header_encoding="latin-1")
        self._h2 = h2.connection.H2Connection(config)
        codes = h2.settings.SettingCodes
        settings: Any = {**self._h2.local_settings, codes.MAX_CONCURRENT_STREAMS: upstream.streams}
        self._h2.local_settings = h2.settings.Settings(client=False, initial_values=settings)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._first = True

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())

    async def run(self) -> None:
        self._h2.initiate_connection()
        self._flush()
        try:
            while data := await self._reader.read(65536):
                for event in self._h2.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        stream = event.stream_id
                        self._tasks[stream] = asyncio.create_task(
                            self._answer(stream, [*event.headers])
                        )
                    elif isinstance(event, h2.events.DataReceived):
                        self._h2.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
                    elif isinstance(event, h2.events.StreamReset):
                        task = self._tasks.pop(event.stream_id, None)
                        if task is not None:
                            task.cancel()
                self._flush()
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def _answer(self, stream: int, headers: Any) -> None:
        pseudo = {key: value for key, value in headers if key.startswith(":")}
        plain = [(key, value) for key, value in headers if not key.startswith(":")]
        plain.append(("host", pseudo[":authority"]))
        method, target = pseudo[":method"], pseudo[":path"]
        upstream = self._upstream
        probe = upstream.note(method, target, plain, self._first, "h2")
        self._first = self._first and probe
        if "watch=true" in target and upstream.watched:
            with upstream.watching() as queue:
                self._h2.send_headers(stream, [(":status", "200")])
                self._h2.send_data(stream, upstream.name.encode() + b"\n")
                self._flush()
                while True:
                    self._h2.send_data(stream, await queue.get())
                    self._flush()
        if "lost" in target:
            self._writer.transport.abort()
            return
        if "abort" in target:
            # What Go's server does with a request whose handler gave up.
            self._h2.send_headers(stream, [(":status", "200")])
            self._h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
            self._tasks.pop(stream, None)
            self._flush()
            return
        if "refuse" in target and upstream.refusals:
            upstream.refusals -= 1
            self._h2.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
            self._tasks.pop(stream, None)
            self._flush()
            return
        if "goaway" in target and upstream.refusals:
            upstream.refusals -= 1
            self._h2.close_connection(last_stream_id=stream)
            self._flush()
            await be_slow(0.1)
            self._writer.close()
            return
        status, body = await upstream.answer(method, target, plain)
        more = () if probe else upstream.more_headers
        self._h2.send_headers(stream, [(":status", str(status)), *more])
        self._h2.send_data(stream, b"" if method == "HEAD" else body, end_stream=True)
        self._tasks.pop(stream, None)
        self._flush()


@contextlib.asynccontextmanager
async def serving(name: str, context: ssl.SSLContext | None) -> AsyncIterator[Upstream]:
    """Run one for a while."""
    upstream = Upstream(name)
    server = await upstream.start(context)
    async with server:
        yield upstream
        upstream.close()
