"""Call of gRPC with streams in both directions, over an HTTP/2 stream."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from gatehouse.sidecars.picker.http2 import Http2Connection, Http2Stream, StreamFailedError

MAX_CALL_MESSAGE_BYTES = 4 << 20
"""Maximum size of a received message, as gRPC has it by default."""

_PREFIX_BYTES = 5
"""A message is preceded by a flag for compression, and its length in four bytes."""


class CallFailedError(Exception):
    """A call failed. The message says why."""


class GrpcCall:
    """A call that was started."""

    def __init__(self, stream: Http2Stream) -> None:
        self._stream = stream
        self._received = bytearray()

    @classmethod
    def start(
        cls, connection: Http2Connection, method: str, authority: str, scheme: str
    ) -> GrpcCall:
        """Start a call. Raises CallFailedError."""
        headers: Sequence[tuple[str, str]] = (
            (":method", "POST"),
            (":scheme", scheme),
            (":path", method),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        )
        try:
            return cls(connection.open_stream(headers))
        except StreamFailedError as error:
            raise CallFailedError(str(error)) from error

    async def send(self, message: bytes) -> None:
        """Send a message. Raises CallFailedError."""
        try:
            await self._stream.send(b"\0" + len(message).to_bytes(4) + message)
        except StreamFailedError as error:
            raise CallFailedError(self._status() or str(error)) from error

    def end(self) -> None:
        """End the stream of messages to the server."""
        self._stream.end()

    async def receive(self) -> bytes | None:
        """Return the next message; None after the end of a successful call. Raises
        CallFailedError."""
        while True:
            message = self._complete_message()
            if message is not None:
                return message
            try:
                data = await self._stream.receive()
            except StreamFailedError as error:
                raise CallFailedError(self._status() or str(error)) from error
            if not data:
                self._check_end()
                return None
            self._received += data

    def _complete_message(self) -> bytes | None:
        received = self._received
        if len(received) < _PREFIX_BYTES:
            return None
        length = int.from_bytes(received[1:_PREFIX_BYTES])
        if length > MAX_CALL_MESSAGE_BYTES:
            raise CallFailedError(
                f"a message of {length} bytes, more than {MAX_CALL_MESSAGE_BYTES}"
            )
        if received[0]:
            raise CallFailedError("a compressed message, which was not asked for")
        if len(received) < _PREFIX_BYTES + length:
            return None
        message = bytes(received[_PREFIX_BYTES : _PREFIX_BYTES + length])
        del received[: _PREFIX_BYTES + length]
        return message

    def _check_end(self) -> None:
        """Raise CallFailedError unless the call ended well."""
        problem = self._status()
        if problem:
            raise CallFailedError(problem)
        if self._received:
            raise CallFailedError("the call ended within a message")
        if "grpc-status" not in self._stream.headers:
            status = self._stream.headers.get(":status", "")
            raise CallFailedError(f"the response has no gRPC status, and HTTP status {status}")

    def _status(self) -> str:
        """Return the failure in the trailers; empty if there is none."""
        headers = self._stream.headers
        status = headers.get("grpc-status", "0")
        text = unquote(headers.get("grpc-message", ""))[:300]
        return "" if status == "0" else ascii(f"gRPC status {status}: {text}")[1:-1]

    def close(self) -> None:
        """Cancel the call unless it has ended."""
        self._stream.close()
