"""`gatehouse explain --send` for TCP, UDP and TLS: a real connection and its result."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from socket import create_connection, socket
from tempfile import TemporaryDirectory

import msgspec

from gatehouse.cli.logged_request import LoggedRequest, SentConnection
from gatehouse.cli.sent_response import SentResponse, failure_text
from gatehouse.compiler.evaluation.explanation import ExpectedResponse
from gatehouse.compiler.evaluation.l4_matching import L4Connection
from kube_base.runtime.time_limits import scaled

TIMEOUT_SECONDS = scaled(15.0)
"""Time for a connection to be established, and for its TLS handshake."""

QUIET_SECONDS = 2.0
"""Time without data after which a connection counts as forwarded: its backend may be silent."""

_MAX_READ_BYTES = 65536
_UDP_DATA = b"\n"
"""Datagram that is sent unless the user sets data: an empty one begins no session."""


class Reply(msgspec.Struct, frozen=True):
    """Result of opening a connection."""

    text: str
    answered: bool | None
    """True: the backend sent data. False: the connection was closed without data, or not accepted.
    None: nothing was received."""
    connection: SentConnection | None = None
    """None if there was none, so that there is no entry in the access log."""


async def open_and_compare(
    connection: L4Connection, address: str, data: bytes, expected: ExpectedResponse
) -> tuple[SentResponse, SentConnection | None]:
    """Open a connection, and compare the result with the expectation.

    ``data``: sent after the TLS handshake, if there is one. Return also what the access log has of
    it, if that may tell more.
    """
    send = _send_datagram if connection.protocol == "UDP" else _send_stream
    reply = await send(connection, address, data)
    # A datagram that the data plane ignores has no answer.
    refused = reply.answered is False or (connection.protocol == "UDP" and not reply.answered)
    agrees = {"forwarded": reply.answered is not False, "no-answer": refused}
    sent = SentResponse.compared(reply.text, agrees.get(expected.verdict, True))
    conclusive = reply.answered or (sent.agrees and expected.verdict == "no-answer")
    return sent, None if conclusive else reply.connection


def with_entry(
    sent: SentResponse, logged: LoggedRequest, expected: ExpectedResponse
) -> SentResponse:
    """Return the result with its entry in the access log, which knows what was forwarded."""
    agrees = sent.agrees
    if not logged.problem and expected.verdict in ("forwarded", "no-answer"):
        forwarded = bool(logged.endpoint) and not logged.reason
        agrees = forwarded == (expected.verdict == "forwarded")
    return sent.judged(agrees, logged)


async def _send_stream(connection: L4Connection, address: str, data: bytes) -> Reply:
    started = time.time()
    place = (address, connection.port)
    try:
        opened = await asyncio.to_thread(create_connection, place, TIMEOUT_SECONDS)
    except OSError as error:
        return Reply(f"no connection ({failure_text(error)})", answered=False)
    peer = str(opened.getsockname()[0])
    trace = SentConnection(connection.port, "TCP", connection.sni.lower(), peer, started)
    failure = "no TLS connection" if connection.protocol == "TLS" else "closed"
    try:
        async with _streams(opened, connection) as (reader, writer):
            failure = "closed"
            writer.write(data)
            async with asyncio.timeout(QUIET_SECONDS):
                received = await reader.read(_MAX_READ_BYTES)
    except TimeoutError:
        return Reply(f"open without data for {QUIET_SECONDS:g} s", None, trace)
    except OSError as error:
        return Reply(f"{failure} ({failure_text(error)})", answered=False, connection=trace)
    if received:
        return Reply(f"{len(received)} bytes received", answered=True, connection=trace)
    return Reply("closed without data", answered=False, connection=trace)


@contextlib.asynccontextmanager
async def _streams(
    opened: socket, connection: L4Connection
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield the streams of a connection, after the handshake of TLS. Raises OSError."""
    opened.setblocking(False)
    tls = connection.protocol == "TLS"
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(
                sock=opened,
                ssl=unverified() if tls else None,
                server_hostname=connection.sni if tls else None,
            )
    except TimeoutError as error:
        raise OSError(f"no TLS handshake within {TIMEOUT_SECONDS:g} s") from error
    try:
        yield reader, writer
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(QUIET_SECONDS):
            await writer.wait_closed()


def unverified(*protocols: str) -> ssl.SSLContext:
    """Return settings of TLS that accept any certificate. ``protocols``: of ALPN.

    The certificate of a test or a redirect by DNS is not what is asked about.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


class _Datagrams(asyncio.DatagramProtocol):
    """Receiver of the first datagram, or of the error of the socket."""

    def __init__(self) -> None:
        self.received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, _address: object) -> None:
        if not self.received.done():
            self.received.set_result(data)

    def error_received(self, error: Exception) -> None:
        if not self.received.done():
            self.received.set_exception(error)


async def _send_datagram(connection: L4Connection, address: str, data: bytes) -> Reply:
    started, loop = time.time(), asyncio.get_running_loop()
    try:
        transport, datagrams = await loop.create_datagram_endpoint(
            _Datagrams, remote_addr=(address, connection.port)
        )
    except OSError as error:
        return Reply(f"no datagram sent ({failure_text(error)})", answered=False)
    peer = str(transport.get_extra_info("sockname")[0])
    trace = SentConnection(connection.port, "UDP", "", peer, started)
    with contextlib.closing(transport):
        transport.sendto(data or _UDP_DATA)
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                received = await datagrams.received
        except TimeoutError:
            return Reply(f"no datagram within {QUIET_SECONDS:g} s", None, trace)
        except OSError as error:
            return Reply(f"no datagram ({failure_text(error)})", answered=False)
    return Reply(f"{len(received)} bytes received", answered=True, connection=trace)


@contextlib.asynccontextmanager
async def plain_socket(address: str, port: int, server_name: str) -> AsyncIterator[Path]:
    """Yield a Unix socket whose connection goes on by TLS, with HTTP/2, without verification.

    Clients of gRPC verify certificates always. Raises OSError if TLS fails.
    """
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection(
            address, port, ssl=unverified("h2"), server_hostname=server_name
        )
    writers = [writer]

    async def relay(own_reader: asyncio.StreamReader, own_writer: asyncio.StreamWriter) -> None:
        writers.append(own_writer)
        for source, target in ((own_reader, writer), (reader, own_writer)):
            tasks.append(asyncio.create_task(_copy(source, target)))

    with TemporaryDirectory(prefix="gatehouse-") as directory:
        path = Path(directory) / "grpc"
        try:
            async with await asyncio.start_unix_server(relay, path):
                yield path
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, *map(_close, writers), return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_MAX_READ_BYTES):
            target.write(data)
            await target.drain()
    target.close()
