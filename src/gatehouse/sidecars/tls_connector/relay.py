"""One connection of NGINX, and the TLS connection to an endpoint that it goes on over.

Each side reads only while the other takes what was read, so that no more than a few reads are held.
An end of one direction is passed on as such; a connection that NGINX closed altogether is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import ssl
from collections.abc import Callable
from typing import cast

import msgspec

from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.tls_connector import san_match
from gatehouse.sidecars.tls_connector.config import Connector

CONNECT_SECONDS = 5.0
"""For the connection and its handshake; as NGINX's own connections are given."""

RECORD = 1 << 14
"""Bytes of the largest record of TLS."""


class Target(msgspec.Struct, frozen=True):
    """An endpoint, and what TLS to it is made with."""

    connector: Connector
    context: ssl.SSLContext


class UntrustedError(Exception):
    """The endpoint proved to be somebody else than asked for."""


class DownstreamConnection(asyncio.Protocol):
    """NGINX's side of a connection. ``on_end`` is called when all of it is over."""

    def __init__(
        self,
        target: Target,
        failures: FailureLog,
        on_end: Callable[[DownstreamConnection], None] = lambda _: None,
    ) -> None:
        self._target = target
        self._failures = failures
        self._on_end = on_end
        self._far = UpstreamConnection(target, self)
        self._opening: asyncio.Task[None] | None = None
        self._early: list[bytes] | None = []
        """What came before the endpoint was proven; None afterwards."""
        self._ended = False
        self._lost = False
        self._left = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the other side; nothing is passed on before that is proven."""
        self.transport = cast(asyncio.Transport, transport)
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        target = self._target.connector
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(lambda: self._far, target.address, target.port)
                await self._far.proven
        except TimeoutError:
            self.fail(f"no connection within {CONNECT_SECONDS:g} s")
        except (OSError, UntrustedError) as error:
            self.fail(reason(error))
        else:
            self._go_on()

    def _go_on(self) -> None:
        early, self._early = self._early or [], None
        for data in early:
            self._far.send(data)
        if self._ended:
            self._far.send_end()
        if not self._far.is_full:
            self.read_on()

    def read_on(self) -> None:
        """Read what NGINX sends, once the endpoint is proven and takes it."""
        if self._early is None and not self.transport.is_closing():
            self.transport.resume_reading()

    def fail(self, why: str) -> None:
        """Give up; NGINX finds its connection closed before an answer, and says 502."""
        self._failures.record(self._target.connector.shown, why)
        self._far.close()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Pass on what NGINX sent."""
        if self._early is None:
            self._far.send(data)
        else:
            # Not paused from the start: uvloop only takes that once it reads.
            self._early.append(data)
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """Pass on an end; an endpoint may still answer, unless NGINX does not read either."""
        if _hung_up(self.transport):
            self._far.close()
            return False
        self._ended = True
        if self._early is None:
            self._far.send_end()
        return True

    def pause_writing(self) -> None:
        """NGINX does not take more."""
        self._far.transport.pause_reading()

    def resume_writing(self) -> None:
        """NGINX takes more."""
        if not self._far.transport.is_closing():
            self._far.transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """End the other side too."""
        self._lost = True
        if self._opening is not None:
            self._opening.cancel()
        self._far.close()
        self.over()

    def over(self) -> None:
        """Say so if both sides are gone."""
        if self._lost and not self._far.is_open:
            self._on_end(self)

    def abort(self) -> None:
        """End it now, whatever was not sent."""
        self._far.abort()
        self.transport.abort()

    def look(self) -> None:
        """Abort it if NGINX left and the endpoint has taken nothing since the last look.

        While an endpoint takes nothing, nothing is read, and so no end is seen.
        """
        if not self._lost and (self.transport.is_closing() or not _hung_up(self.transport)):
            self._left = -1
            return
        left, self._left = self._left, self._far.unsent()
        if left == self._left:
            self.abort()


class UpstreamConnection(asyncio.Protocol):
    """The endpoint's side of a connection. ``proven`` is done when it is whom it should be."""

    transport: asyncio.Transport

    def __init__(self, target: Target, near: DownstreamConnection) -> None:
        self.proven: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._near = near
        self._names = target.connector.names
        self._received, self._ready = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = target.connector.server_name
        self._tls = target.context.wrap_bio(self._received, self._ready, server_hostname=name)
        self.is_open = False
        self.is_full = False
        """Whether more is waiting to be sent than should."""
        self._proven = False
        self._heard = False
        self._ended = [False, False]
        """Whether an end was sent, and whether one was received."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self.transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self._handshake()

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, or pass on what the endpoint sent."""
        self._received.write(data)
        if not self._proven:
            self._handshake()
        # Never what somebody else says, not even before the connection is closed.
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
            wanted = ", ".join(name.value for name in self._names)
            raise UntrustedError(
                f"the certificate has none of the names {wanted}; it has "
                f"{san_match.shown(certificate)}"
            )

    def _fail_verification(self, error: Exception) -> None:
        if not self.proven.done():
            self.proven.set_exception(error)

    def _pass_on(self) -> None:
        chunks = []
        failure = ""
        try:
            while chunk := self._tls.read(RECORD):
                chunks.append(chunk)
                if not self._received.pending and not self._tls.pending():
                    break
            else:
                self._ended[1] = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            # An end without notice is one as well; NGINX takes it so too.
            self._ended[1] = True
        except ssl.SSLError as error:
            failure = reason(error)
        self._flush()
        self._heard = self._heard or bool(chunks)
        if chunks and not self._near.transport.is_closing():
            self._near.transport.write(b"".join(chunks))
        if failure:
            self._near.fail(failure)
        elif self._ended[1]:
            self._end_received()

    def _end_received(self) -> None:
        if self._ended[0]:
            self._near.transport.close()
        elif not self._near.transport.is_closing():
            self._near.transport.write_eof()

    def send(self, data: bytes) -> None:
        """Send what NGINX sent."""
        if not self.is_open or self._ended[0]:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as error:
            self._near.fail(reason(error))
            return
        self._flush()

    def send_end(self) -> None:
        """Say that nothing more comes; all that was received has been read, so none is lost."""
        if not self.is_open or self._ended[0]:
            return
        self._ended[0] = True
        # It wants to read, since the endpoint has not ended its direction yet.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        if self._ended[1]:
            self._near.transport.close()

    def _flush(self) -> None:
        if self._ready.pending and not self.transport.is_closing():
            self.transport.write(self._ready.read())

    def eof_received(self) -> bool:
        """Take the end of the connection for one of what was sent on it."""
        self._received.write_eof()
        self._fail_verification(
            ConnectionResetError("the connection was closed during the handshake")
        )
        if self._proven and not self._ended[1]:
            self._pass_on()
        return True

    def pause_writing(self) -> None:
        """The endpoint does not take more."""
        self.is_full = True
        self._near.transport.pause_reading()

    def resume_writing(self) -> None:
        """The endpoint takes more."""
        self.is_full = False
        self._near.read_on()

    def connection_lost(self, error: Exception | None) -> None:
        """End NGINX's side too, when it has taken what there is."""
        self.is_open = False
        self._fail_verification(
            error or ConnectionResetError("the connection was closed during the handshake")
        )
        if error is not None and self._proven and not self._heard:
            # As an endpoint does that refuses our certificate, if its reason is lost on the way.
            self._near.fail(f"the connection was lost before any answer: {reason(error)}")
        self._near.transport.close()
        self._near.over()

    def close(self) -> None:
        """End it, with notice where that is possible."""
        self.proven.cancel()
        if self.is_open:
            self.send_end()
            self.transport.close()

    def unsent(self) -> int:
        """How many bytes the endpoint has not taken yet."""
        return self.transport.get_write_buffer_size() if self.is_open else 0

    def abort(self) -> None:
        """End it now, whatever was not sent."""
        self.proven.cancel()
        if self.is_open:
            self.transport.abort()


def reason(error: Exception) -> str:
    """Say what is wrong, without the address, which the message has already."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)


def _hung_up(transport: asyncio.Transport) -> bool:
    """Whether the peer of a Unix socket closed it, rather than only its direction."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))
