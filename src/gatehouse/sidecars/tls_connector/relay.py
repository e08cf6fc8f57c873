"""Relay between a connection of NGINX and its TLS connection to an endpoint.

Each side reads only while the other accepts data, so that at most a few reads are buffered. The end
of one direction is passed on. If NGINX closes both directions, the endpoint's connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import ssl
from collections.abc import Callable
from typing import cast

import msgspec

from gatehouse.sidecars.base import san_match
from gatehouse.sidecars.base.failure_log import FailureLog, error_text
from gatehouse.sidecars.tls_connector.config import Connector
from gatehouse.sidecars.tls_connector.last_handshake import UntrustedError

CONNECT_SECONDS = 5.0
"""Timeout in seconds for connecting and the handshake, the same as for NGINX's own connections."""

MAX_RECORD_BYTES = 1 << 14
"""Maximum size of a TLS record in bytes."""


class RelayTarget(msgspec.Struct, frozen=True):
    """An endpoint and its TLS context."""

    connector: Connector
    context: ssl.SSLContext


class DownstreamConnection(asyncio.Protocol):
    """NGINX's side of a connection. ``on_end`` is called when both sides are closed, and
    ``on_handshake`` with the result of the handshake, before NGINX learns it."""

    def __init__(
        self,
        target: RelayTarget,
        failures: FailureLog,
        on_end: Callable[[DownstreamConnection], None] = lambda _: None,
        on_handshake: Callable[[Exception | None], None] = lambda _: None,
    ) -> None:
        self._on_handshake = on_handshake
        self._target = target
        self._failures = failures
        self._on_end = on_end
        self._upstream = UpstreamConnection(target, self)
        self._opening: asyncio.Task[None] | None = None
        self._pending: list[bytes] | None = []
        """Data received before the endpoint was verified; None afterwards."""
        self._ended = False
        self._lost = False
        self._last_unsent = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the endpoint. No data is passed on before it is verified."""
        self.transport = cast(asyncio.Transport, transport)
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        target = self._target.connector
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(lambda: self._upstream, target.address, target.port)
                await self._upstream.proven
        except TimeoutError as error:
            self._on_handshake(error)
            self.fail(f"no connection within {CONNECT_SECONDS:g} s")
        except (OSError, UntrustedError) as error:
            self._on_handshake(error)
            self.fail(error_text(error))
        else:
            self._on_handshake(None)
            self._start_relaying()

    def _start_relaying(self) -> None:
        pending, self._pending = self._pending or [], None
        for data in pending:
            self._upstream.send(data)
        if self._ended:
            self._upstream.send_end()
        if not self._upstream.is_full:
            self.resume_reading()

    def resume_reading(self) -> None:
        """Resume reading from NGINX if the endpoint is verified and accepts data."""
        if self._pending is None and not self.transport.is_closing():
            self.transport.resume_reading()

    def fail(self, why: str) -> None:
        """Log the reason and close both sides. NGINX responds with 502."""
        self._failures.record(self._target.connector.description, why)
        self._upstream.close()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Pass on data from NGINX."""
        if self._pending is None:
            self._upstream.send(data)
        else:
            # Not paused from the start: uvloop can pause only once it reads.
            self._pending.append(data)
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """Pass on the end of NGINX's data. The endpoint may still respond unless NGINX stopped
        reading."""
        if _hung_up(self.transport):
            self._upstream.close()
            return False
        self._ended = True
        if self._pending is None:
            self._upstream.send_end()
        return True

    def pause_writing(self) -> None:
        """Pause reading from the endpoint while NGINX does not read."""
        self._upstream.transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading from the endpoint."""
        if not self._upstream.transport.is_closing():
            self._upstream.transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """Close the endpoint's side."""
        self._lost = True
        if self._opening is not None:
            self._opening.cancel()
        self._upstream.close()
        self.check_end()

    def check_end(self) -> None:
        """Call ``on_end`` if both sides are closed."""
        if self._lost and not self._upstream.is_open:
            self._on_end(self)

    def abort(self) -> None:
        """End it now, whatever was not sent."""
        self._upstream.abort()
        self.transport.abort()

    def abort_if_stalled(self) -> None:
        """Abort if NGINX left and the endpoint has read nothing since the last call.

        While an endpoint does not read, NGINX's data is not read either, so its end is not noticed.
        """
        if not self._lost and (self.transport.is_closing() or not _hung_up(self.transport)):
            self._last_unsent = -1
            return
        before, self._last_unsent = self._last_unsent, self._upstream.unsent()
        if before == self._last_unsent:
            self.abort()


class UpstreamConnection(asyncio.Protocol):
    """The endpoint's side of a connection. ``proven`` completes when the endpoint is verified."""

    transport: asyncio.Transport

    def __init__(self, target: RelayTarget, downstream: DownstreamConnection) -> None:
        self.proven: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._downstream = downstream
        self._names = target.connector.names
        self._received, self._ready = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = target.connector.server_name
        self._tls = target.context.wrap_bio(self._received, self._ready, server_hostname=name)
        self.is_open = False
        self.is_full = False
        """True while the write buffer is above its limit."""
        self._proven = False
        self._received_data = False
        self._ended = [False, False]
        """Flags: the end of data was sent; it was received."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake."""
        self.transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self._handshake()

    def data_received(self, data: bytes) -> None:
        """Continue the handshake, or pass on data from the endpoint."""
        self._received.write(data)
        if not self._proven:
            self._handshake()
        # Data of an unverified peer is never passed on, not even before the connection is closed.
        if self._proven:
            self._pass_on()

    def _handshake(self) -> None:
        if self.proven.done():
            return
        try:
            self._tls.do_handshake()
            self._verify()
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, UntrustedError) as error:
            self._fail_verification(error)
        else:
            self._proven = True
            self.proven.set_result(None)
        self._flush()

    def _verify(self) -> None:
        certificate = self._tls.getpeercert() or {}
        if not san_match.matches_any_san(certificate, self._names):
            accepted = ", ".join(name.value for name in self._names)
            raise UntrustedError(
                f"the certificate has none of the names {accepted}; it has "
                f"{san_match.format_certificate_names(certificate)}"
            )

    def _fail_verification(self, error: Exception) -> None:
        if not self.proven.done():
            self.proven.set_exception(error)

    def _pass_on(self) -> None:
        chunks = []
        failure = ""
        try:
            while chunk := self._tls.read(MAX_RECORD_BYTES):
                chunks.append(chunk)
                if not self._received.pending and not self._tls.pending():
                    break
            else:
                self._ended[1] = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            # An end without close_notify counts as an end, as in NGINX.
            self._ended[1] = True
        except ssl.SSLError as error:
            failure = error_text(error)
        self._flush()
        self._received_data = self._received_data or bool(chunks)
        if chunks and not self._downstream.transport.is_closing():
            self._downstream.transport.write(b"".join(chunks))
        if failure:
            self._downstream.fail(failure)
        elif self._ended[1]:
            self._end_received()

    def _end_received(self) -> None:
        if self._ended[0]:
            self._downstream.transport.close()
        elif not self._downstream.transport.is_closing():
            self._downstream.transport.write_eof()

    def send(self, data: bytes) -> None:
        """Send data from NGINX."""
        if not self.is_open or self._ended[0]:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as error:
            self._downstream.fail(error_text(error))
            return
        self._flush()

    def send_end(self) -> None:
        """Send close_notify. All received data has been read before, so none is lost."""
        if not self.is_open or self._ended[0]:
            return
        self._ended[0] = True
        # Raises because the endpoint has not ended its direction yet.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        if self._ended[1]:
            self._downstream.transport.close()

    def _flush(self) -> None:
        if self._ready.pending and not self.transport.is_closing():
            self.transport.write(self._ready.read())

    def eof_received(self) -> bool:
        """Treat the end of the connection as the end of its data."""
        self._received.write_eof()
        self._fail_verification(
            ConnectionResetError("the connection was closed during the handshake")
        )
        if self._proven and not self._ended[1]:
            self._pass_on()
        return True

    def pause_writing(self) -> None:
        """Pause reading from NGINX while the endpoint does not read."""
        self.is_full = True
        self._downstream.transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading from NGINX."""
        self.is_full = False
        self._downstream.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Close NGINX's side after it has received all data."""
        self.is_open = False
        self._fail_verification(
            error or ConnectionResetError("the connection was closed during the handshake")
        )
        if error is not None and self._proven and not self._received_data:
            # Typical for an endpoint that rejects the client certificate, if its alert is lost.
            self._downstream.fail(f"connection lost before any response: {error_text(error)}")
        self._downstream.transport.close()
        self._downstream.check_end()

    def close(self) -> None:
        """Close the connection, with close_notify if possible."""
        self.proven.cancel()
        if self.is_open:
            self.send_end()
            self.transport.close()

    def unsent(self) -> int:
        """Return the number of bytes not yet sent to the endpoint."""
        return self.transport.get_write_buffer_size() if self.is_open else 0

    def abort(self) -> None:
        """End it now, whatever was not sent."""
        self.proven.cancel()
        if self.is_open:
            self.transport.abort()


def _hung_up(transport: asyncio.Transport) -> bool:
    """Return whether the peer of a Unix socket closed it completely."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))
