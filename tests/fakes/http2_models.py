"""Model servers that speak HTTP/2 without TLS: they repeat the body of a request as it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from h2 import events, exceptions
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from fakes.patience import until
from gatehouse.dataplane.endpoints import WeightedEndpoint

HOST = "127.0.0.1"

Fields = list[tuple[str, str]]


class Http2Models:
    """Model servers by name."""

    def __init__(self) -> None:
        self.endpoints: dict[str, WeightedEndpoint] = {}
        self.requests: list[tuple[str, Fields]] = []
        """The server and the header fields of each request."""
        self.connections = 0
        """Number of open connections."""
        self.fields: Fields = []
        """Header fields of responses, besides the status and ``x-model``."""
        self.resets = False
        """True: streams are reset after the headers of the response."""
        self.is_endless = False
        """True: responses never end."""
        self.sent = 0
        """Number of bytes of bodies that were sent."""
        self.answers_first = False
        """True: the response ends before the request is read."""

    @contextlib.asynccontextmanager
    async def serve(self, *names: str) -> AsyncIterator[None]:
        """Serve on free ports."""
        async with self.serve_at(dict.fromkeys(names, (HOST, 0))):
            yield

    @contextlib.asynccontextmanager
    async def serve_at(self, addresses: dict[str, tuple[str, int]]) -> AsyncIterator[None]:
        """Serve on addresses."""
        writers: set[asyncio.StreamWriter] = set()
        async with contextlib.AsyncExitStack() as stack:
            for name, (host, port) in addresses.items():

                async def answer(
                    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name
                ) -> None:
                    self.connections += 1
                    writers.add(writer)
                    with contextlib.suppress(OSError, exceptions.ProtocolError):
                        await _Connection(self, name, reader, writer).run()
                    self.connections -= 1
                    writers.discard(writer)
                    writer.close()

                server = await asyncio.start_server(answer, host, port)
                stack.callback(server.close)
                self.endpoints[name] = WeightedEndpoint(host, server.sockets[0].getsockname()[1])
            yield
        for writer in tuple(writers):
            writer.close()
        await until(lambda: not self.connections)


class _Connection:
    def __init__(
        self,
        models: Http2Models,
        name: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._models, self._name = models, name
        self._reader, self._writer = reader, writer
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._pending: dict[int, bytearray] = {}
        """Data of requests that were not sent back yet."""
        self._ended: set[int] = set()

    async def run(self) -> None:
        self._h2.initiate_connection()
        while True:
            self._writer.write(self._h2.data_to_send())
            await self._writer.drain()
            data = await self._reader.read(1 << 16)
            if not data:
                return
            for event in self._h2.receive_data(data):
                self._process(event)
            for number in tuple(self._pending):
                self._repeat(number)

    def _process(self, event: events.Event) -> None:
        match event:
            case events.RequestReceived(stream_id=number, headers=headers):
                self._begin(number, headers)
            case events.DataReceived(stream_id=number, data=data, flow_controlled_length=size):
                self._h2.acknowledge_received_data(size, number)
                if number in self._pending:
                    self._pending[number] += data
            case events.StreamEnded(stream_id=number):
                self._ended.add(number)
            case events.StreamReset(stream_id=number):
                self._pending.pop(number, None)

    def _begin(self, number: int, headers: object) -> None:
        assert isinstance(headers, list)
        fields = [
            (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
            for name, value in headers
        ]
        models = self._models
        models.requests.append((self._name, fields))
        own = [(":status", "200"), ("x-model", self._name), *models.fields]
        encoded = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in own]
        is_head = dict(fields)[":method"] == "HEAD"
        self._h2.send_headers(number, encoded, end_stream=is_head or models.answers_first)
        if models.resets:
            self._h2.reset_stream(number, ErrorCodes.INTERNAL_ERROR)
        elif not is_head and not models.answers_first:
            self._pending[number] = bytearray()

    def _repeat(self, number: int) -> None:
        pending = self._pending[number]
        if self._models.is_endless and len(pending) < 1 << 20:
            pending += bytes(1 << 20)
        while pending:
            window = self._h2.local_flow_control_window(number)
            size = min(len(pending), window, self._h2.max_outbound_frame_size)
            if size <= 0:
                return
            self._h2.send_data(number, bytes(pending[:size]))
            self._models.sent += size
            del pending[:size]
        if number in self._ended:
            self._h2.end_stream(number)
            del self._pending[number]
