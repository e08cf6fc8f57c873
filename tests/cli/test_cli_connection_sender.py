"""`gatehouse explain --send` for connections: their results, and comparison with expectations."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from fakes.authority import Authority
from gatehouse.cli import connection_sender
from gatehouse.cli.connection_sender import open_and_compare, with_entry
from gatehouse.cli.logged_request import LoggedRequest, SentConnection
from gatehouse.cli.sent_response import SentResponse
from gatehouse.compiler.evaluation.explanation import AnswerVerdict, ExpectedResponse
from gatehouse.compiler.evaluation.l4_matching import L4Connection

pytestmark = pytest.mark.process

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Protocol = Literal["TCP", "UDP", "TLS"]


@pytest.fixture(autouse=True)
def short_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_sender, "QUIET_SECONDS", 0.2)


async def _returning(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(100))


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close the connection at once."""


@contextlib.asynccontextmanager
async def _serving(behaviour: Behaviour) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await behaviour(reader, writer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def _free_port() -> int:
    with socket.socket() as unbound:
        unbound.bind(("127.0.0.1", 0))
        return int(unbound.getsockname()[1])


async def _open(
    protocol: Protocol, port: int, verdict: AnswerVerdict, data: bytes = b""
) -> tuple[SentResponse, SentConnection | None]:
    connection = L4Connection(protocol, port, "db.example" if protocol == "TLS" else "")
    return await open_and_compare(connection, "127.0.0.1", data, ExpectedResponse(verdict, ""))


@pytest.mark.parametrize(
    ("behaviour", "protocol", "text", "forwarded", "logged"),
    [
        (_returning, "TCP", "4 bytes received", True, False),
        (_silent, "TCP", "open without data for 0.2 s", True, True),
        (_closing, "TCP", "closed", False, True),
        (_closing, "TLS", "no TLS connection", False, True),
    ],
)
async def test_connection_is_compared_with_the_expectation(
    behaviour: Behaviour, protocol: Protocol, text: str, forwarded: bool, logged: bool
) -> None:
    async with _serving(behaviour) as port:
        sent, connection = await _open(protocol, port, "forwarded", b"ping")
        assert sent.text.startswith(text)
        assert sent.agrees is forwarded
        assert (connection is not None) is logged
        if connection is not None:
            name = "db.example" if protocol == "TLS" else ""
            assert (connection.port, connection.peer) == (port, "127.0.0.1")
            assert (connection.protocol, connection.server_name) == ("TCP", name)
        other, connection = await _open(protocol, port, "no-answer", b"ping")
        assert other.agrees is not forwarded
        assert (connection is not None) is (text.startswith("open"))
        assert (await _open(protocol, port, "mixed", b"ping"))[0].agrees


async def test_refused_connection_has_no_entry() -> None:
    sent, connection = await _open("TCP", _free_port(), "forwarded")
    assert sent.text == "no connection (Connection refused), unlike the expected answer"
    assert connection is None
    assert (await _open("TCP", _free_port(), "no-answer"))[0].agrees


class _Datagrams(asyncio.DatagramProtocol):
    """Backend that returns datagrams, except of one byte."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        if len(data) > 1:
            self._transport.sendto(data, address)


async def test_datagram_is_compared_with_the_expectation() -> None:
    """Silence is no contradiction to either expectation: only the access log knows."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_Datagrams, ("127.0.0.1", 0))
    with contextlib.closing(transport):
        port = transport.get_extra_info("sockname")[1]
        sent, connection = await _open("UDP", port, "forwarded", b"ping")
        assert (sent.text, connection) == ("4 bytes received, as expected", None)
        assert not (await _open("UDP", port, "no-answer", b"ping"))[0].agrees
        sent, connection = await _open("UDP", port, "forwarded")
        assert sent.text == "no datagram within 0.2 s, as expected"
        assert connection is not None
        assert (await _open("UDP", port, "no-answer"))[0].agrees
    refused, connection = await _open("UDP", _free_port(), "forwarded")
    assert refused.text == "no datagram (Connection refused), unlike the expected answer"
    assert connection is None


SILENT = SentResponse.compared("open without data for 2 s", agrees=True)
CLOSED = SentResponse.compared("closed without data", agrees=False)


@pytest.mark.parametrize(
    ("sent", "logged", "verdict", "agrees"),
    [
        (SILENT, LoggedRequest("", "10.0.0.1:5432"), "forwarded", True),
        (SILENT, LoggedRequest("timeout", "10.0.0.1:5432"), "forwarded", False),
        (CLOSED, LoggedRequest("", "10.0.0.1:5432"), "forwarded", True),
        (CLOSED, LoggedRequest("no_route"), "forwarded", False),
        (SILENT, LoggedRequest("", "10.0.0.1:5432"), "no-answer", False),
        (CLOSED, LoggedRequest(problem="there is no data plane"), "forwarded", False),
        (SILENT, LoggedRequest("no_endpoint"), "mixed", True),
    ],
)
def test_access_log_decides_whether_a_connection_was_forwarded(
    sent: SentResponse, logged: LoggedRequest, verdict: AnswerVerdict, agrees: bool
) -> None:
    result = with_entry(sent, logged, ExpectedResponse(verdict, ""))
    assert result.agrees is agrees
    assert result.text.endswith("as expected" if agrees else "unlike the expected answer")
    assert result.text.count(",") == 1
    assert result.logged == logged


async def test_plain_socket_leads_to_a_tls_server_without_verification(tmp_path: Path) -> None:
    names: list[object] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        names.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        writer.write(await reader.read(100))
        await reader.read()
        writer.close()

    context = Authority(tmp_path).server("other.example")
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        async with connection_sender.plain_socket("127.0.0.1", port, "db.example") as path:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            writer.close()
            await writer.wait_closed()
    assert names == ["h2"]
