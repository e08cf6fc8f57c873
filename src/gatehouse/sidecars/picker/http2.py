"""HTTP/2 connection of a client, with flow control that bounds the memory of each stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import cast

from h2 import events, exceptions
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

STREAM_WINDOW = 1 << 16
"""Maximum number of bytes of a stream that are received and not read yet."""

_CONNECTION_WINDOW = (1 << 31) - 1
"""No stream waits for another one to be read."""

MAX_SECTION_BYTES = 1 << 16
"""Maximum size of a header or trailer section."""


class StreamFailedError(Exception):
    """A stream ended before it was complete. The message says why."""


class Http2Stream:
    """One request and its response."""

    def __init__(self, connection: Http2Connection, number: int) -> None:
        self._connection = connection
        self.number = number
        self.headers: dict[str, str] = {}
        """Header and trailer fields of the response that were received."""
        self._fields: list[tuple[str, str]] = []
        self._received: deque[tuple[bytes, int]] = deque()
        self._ended = False
        self._failure = ""
        self._changed = asyncio.Event()
        self.writable = asyncio.Event()

    async def send(self, data: bytes) -> None:
        """Send data when the peer accepts it. Raises StreamFailedError."""
        view = memoryview(data)
        while view:
            self.writable.clear()
            sent = self._connection.send_data(self, view)
            view = view[sent:]
            if view and not sent:
                await self.writable.wait()
        await self._connection.drained()

    def end(self) -> None:
        """End the request, unless the stream ended."""
        self._connection.end_stream(self)

    async def response(self) -> list[tuple[str, str]]:
        """Return the header fields of the response. Raises StreamFailedError."""
        while not self._fields and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        if not self._fields:
            raise StreamFailedError(self._failure)
        return self._fields

    async def receive(self) -> bytes:
        """Return data of the response; empty at its end. Raises StreamFailedError."""
        while not self._received and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        if self._received:
            data, length = self._received.popleft()
            self._connection.acknowledge(self, length)
            return data
        if self._failure:
            raise StreamFailedError(self._failure)
        return b""

    def close(self) -> None:
        """End the stream, and discard what was not read."""
        while self._received:
            self._connection.acknowledge(self, self._received.popleft()[1])
        self._connection.close_stream(self)

    @property
    def failure(self) -> str:
        """Return why the stream failed; empty if it did not."""
        return self._failure

    def add_fields(self, fields: list[tuple[str, str]]) -> None:
        """Add the header fields of the response, and later its trailer fields."""
        self.headers.update(fields)
        self._fields = self._fields or fields
        self._changed.set()

    def add_data(self, data: bytes, length: int) -> None:
        """Add received data that occupies `length` bytes of the window."""
        self._received.append((data, length))
        self._changed.set()

    def add_end(self, failure: str = "") -> None:
        """Note the end of the response."""
        if not self._ended:
            self._ended, self._failure = True, failure
        self._changed.set()
        self.writable.set()


class Http2Connection(asyncio.Protocol):
    """One connection of a client."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._streams: dict[int, Http2Stream] = {}
        self._writable = asyncio.Event()
        self._writable.set()
        self._retired = False
        self.closed = ""
        """Why the connection is closed; empty while it is open."""

    @property
    def is_usable(self) -> bool:
        """Return whether another stream can be opened."""
        limit = self._h2.remote_settings.max_concurrent_streams
        return not (self.closed or self._retired) and len(self._streams) < limit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the settings."""
        self._transport = cast(asyncio.Transport, transport)
        settings: dict[SettingCodes | int, int] = {
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_SECTION_BYTES,
        }
        self._h2.local_settings.update(settings)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_CONNECTION_WINDOW - 65535)
        self._flush()

    def open_stream(self, headers: Sequence[tuple[str, str]], *, end: bool = False) -> Http2Stream:
        """Send the headers of a request. ``end``: there is no body. Raises StreamFailedError."""
        if not self.is_usable:
            raise StreamFailedError(self.closed or "the connection accepts no further streams")
        try:
            number = self._h2.get_next_available_stream_id()
            encoded = [(_encoded(name), _encoded(value)) for name, value in headers]
            self._h2.send_headers(number, encoded, end_stream=end)
        except exceptions.ProtocolError as error:
            self.retire()
            raise StreamFailedError(str(error)) from error
        stream = self._streams[number] = Http2Stream(self, number)
        self._flush()
        return stream

    def send_data(self, stream: Http2Stream, view: memoryview) -> int:
        """Send as much as the peer accepts. Return the number of bytes. Raises
        StreamFailedError."""
        if stream.failure or self.closed:
            raise StreamFailedError(stream.failure or self.closed)
        try:
            window = self._h2.local_flow_control_window(stream.number)
            size = min(len(view), window, self._h2.max_outbound_frame_size)
            if size > 0:
                self._h2.send_data(stream.number, view[:size].tobytes())
        except exceptions.ProtocolError as error:
            raise StreamFailedError("the peer ended the stream") from error
        self._flush()
        return max(size, 0)

    async def drained(self) -> None:
        """Wait while the transport does not accept data. Raises StreamFailedError."""
        await self._writable.wait()
        if self.closed:
            raise StreamFailedError(self.closed)

    def end_stream(self, stream: Http2Stream) -> None:
        """Send the end of a request."""
        with contextlib.suppress(exceptions.ProtocolError):
            self._h2.end_stream(stream.number)
        self._flush()

    def acknowledge(self, stream: Http2Stream, length: int) -> None:
        """Let the peer send as many bytes again."""
        with contextlib.suppress(exceptions.ProtocolError):
            if length and not self.closed:
                self._h2.acknowledge_received_data(length, stream.number)
        self._flush()

    def close_stream(self, stream: Http2Stream) -> None:
        """Forget a stream, and tell the peer if it has not ended."""
        if self._streams.pop(stream.number, None) is None:
            return
        with contextlib.suppress(exceptions.ProtocolError):
            self._h2.reset_stream(stream.number, ErrorCodes.CANCEL)
        self._flush()
        self._close_if_unused()

    def retire(self) -> None:
        """Open no further streams, and close the connection after the last one."""
        self._retired = True
        self._close_if_unused()

    def abort(self) -> None:
        """Close the connection, and end its streams."""
        self._transport.abort()

    def _close_if_unused(self) -> None:
        if self._retired and not self._streams:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Process frames."""
        try:
            for event in self._h2.receive_data(data):
                self._process(event)
        except exceptions.ProtocolError as error:
            self._fail(f"invalid HTTP/2: {error}")
            self._flush()
            self._transport.close()
        else:
            self._flush()

    def _process(self, event: events.Event) -> None:
        number = getattr(event, "stream_id", 0) or 0
        stream = self._streams.get(number)
        match event:
            case events.DataReceived(data=data, flow_controlled_length=length):
                if stream is not None:
                    stream.add_data(data, length)
                elif length:
                    # Data of a stream that was closed meanwhile.
                    self._h2.acknowledge_received_data(length, number)
            case (
                events.ResponseReceived(headers=headers) | events.TrailersReceived(headers=headers)
            ):
                if stream is not None:
                    stream.add_fields(
                        [(_decoded(name), _decoded(value)) for name, value in headers]
                    )
            case events.StreamEnded():
                if stream is not None:
                    stream.add_end()
            case events.StreamReset(error_code=code):
                if stream is not None:
                    stream.add_end(f"the peer reset the stream ({_name(code)})")
            case events.WindowUpdated() | events.RemoteSettingsChanged():
                for waiting in (stream,) if stream is not None else self._streams.values():
                    waiting.writable.set()
            case events.ConnectionTerminated(last_stream_id=last):
                self._end_after(last if last is not None else 0)

    def _end_after(self, last: int) -> None:
        """End the streams that the peer will not process (GOAWAY)."""
        for number, stream in self._streams.items():
            if number > last:
                stream.add_end("the peer closes the connection")
        self.retire()

    def pause_writing(self) -> None:
        """Wait before more is sent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Send again."""
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        """End all streams."""
        self._fail(f"connection lost: {error}" if error else "the peer closed the connection")

    def _fail(self, why: str) -> None:
        self.closed = self.closed or why
        self._writable.set()
        for stream in self._streams.values():
            stream.add_end(self.closed)

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._transport.write(data)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _name(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else str(code)
