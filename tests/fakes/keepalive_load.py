"""Clients of a load balancer's address, and all their failed requests.

They post: a GET that failed on a kept connection would silently be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import aiohttp
import h2.config
import h2.connection
import h2.errors
import h2.events

from fakes import patience
from fakes.durations import pace

PAUSE_SECONDS = 0.005
"""Leaves a busy machine some time for whom this is about."""


class Load:
    """Responses and failures by kind of client."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.answered: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.refused_unprocessed = 0
        """Requests over HTTP/2 that a server said it never looked at (RFC 9113, 8.7)."""
        self.done = False

    @contextlib.asynccontextmanager
    async def running(self, clients: int = 2) -> AsyncIterator[Load]:
        """Run that many clients of each kind."""
        tasks = [
            asyncio.create_task(client)
            for _ in range(clients)
            for client in (
                _first(self, "new", close=True),
                _first(self, "kept", close=False),
                _second(self),
            )
        ]
        try:
            yield self
        finally:
            self.done = True
            await asyncio.gather(*tasks)

    def note(self, kind: str, status: int) -> None:
        if status == 200:
            self.answered[kind] += 1
        else:
            self.failed[f"{kind}: {status}"] += 1


async def _first(load: Load, kind: str, *, close: bool) -> None:
    connector = aiohttp.TCPConnector(force_close=close)
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        while not load.done:
            try:
                async with session.post(f"http://{load.host}:{load.port}/", data=b"x") as response:
                    await response.read()
                    load.note(kind, response.status)
            except (aiohttp.ClientError, TimeoutError) as error:
                load.failed[f"{kind}: {error!r}"] += 1
            await pace(PAUSE_SECONDS)


class _Unprocessed(Exception):
    """The server ended the connection and said that it did not look at the request."""


async def _second(load: Load) -> None:
    connection: _Connection | None = None
    while not load.done:
        try:
            async with patience.limit():
                connection = connection or await _Connection.opened(load.host, load.port)
                load.note("h2", await connection.post())
        except _Unprocessed:
            load.refused_unprocessed += 1
        except (OSError, TimeoutError) as error:
            load.failed[f"h2: {error!r}"] += 1
            if connection is not None:
                connection.ends = True
        if connection is not None and connection.ends:
            await connection.close()
            connection = None
        await pace(PAUSE_SECONDS)
    if connection is not None:
        await connection.close()


class _Connection:
    """One HTTP/2 connection without TLS that sends one request at a time and always reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        config = h2.config.H2Configuration(client_side=True)
        self._state = h2.connection.H2Connection(config=config)
        self._stream, self._status = 0, 0
        self._answer: asyncio.Future[int] | None = None
        self.ends = False
        """True if the server accepts no further requests on it."""

    @classmethod
    async def opened(cls, host: str, port: int) -> _Connection:
        connection = cls(*await asyncio.open_connection(host, port))
        connection._state.initiate_connection()
        connection._send()
        connection._listening = asyncio.create_task(connection._listen())
        return connection

    _listening: asyncio.Task[None]

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()

    async def post(self) -> int:
        if self.ends:
            raise _Unprocessed
        self._answer = asyncio.get_running_loop().create_future()
        self._stream = self._state.get_next_available_stream_id()
        headers = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "l")]
        self._state.send_headers(self._stream, headers)
        self._state.send_data(self._stream, b"x", end_stream=True)
        self._send()
        return await self._answer

    async def _listen(self) -> None:
        try:
            while True:
                # Frame by frame: the library takes nothing more after GOAWAY, with which servers
                # only announce their end.
                head = await self._reader.readexactly(9)
                frame = head + await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                for event in self._state.receive_data(frame):
                    self._take(event)
                self._send()
        except (OSError, asyncio.IncompleteReadError) as error:
            self.ends = True
            self._fail(ConnectionResetError(f"closed before an answer: {error!r}"))

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived():
                self._status = int(dict(event.headers)[b":status"])
            case h2.events.DataReceived():
                self._state.acknowledge_received_data(event.flow_controlled_length, self._stream)
            case h2.events.ConnectionTerminated():
                self.ends = True
                self._state.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
                if (event.last_stream_id or 0) < self._stream:
                    self._fail(_Unprocessed())
            case h2.events.StreamReset(error_code=h2.errors.ErrorCodes.REFUSED_STREAM):
                self._fail(_Unprocessed())
            case h2.events.StreamReset():
                self._fail(ConnectionResetError(f"stream reset: {event.error_code}"))
            case h2.events.StreamEnded():
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(self._status)

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _send(self) -> None:
        if data := self._state.data_to_send():
            self._writer.write(data)
