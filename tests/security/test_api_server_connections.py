"""Attacks by connections: a client without credentials opens many, or never completes a request.

The embedded API server closes such connections in time, and goes on to accept and serve others.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakes.durations import be_slow
from fakes.inprocess import Server
from fakes.patience import limit, until
from fakes.process import ApiServer
from gatehouse.standalone.state_directory import State
from kube_api_server.http import connections
from kube_api_server.http.connections import (
    ClientConnection,
    ConnectionLimits,
    ConnectionTable,
)
from kube_base.runtime import limited_http, open_files

MAPS = "/api/v1/namespaces/default/configmaps"


@contextlib.asynccontextmanager
async def silent(port: int, count: int, sources: int = 1) -> AsyncIterator[list[socket.socket]]:
    """Open TCP connections that send nothing, from several loopback addresses."""
    opened: list[socket.socket] = []
    try:
        for number in range(count):
            source = (f"127.0.1.{number % sources + 1}", 0)
            opened.append(
                await asyncio.to_thread(
                    socket.create_connection, ("127.0.0.1", port), 10, source_address=source
                )
            )
        yield opened
    finally:
        for writer in opened:
            writer.close()


def closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def tls(http: aiohttp.ClientSession) -> ssl.SSLContext:
    connector = http.connector
    assert isinstance(connector, aiohttp.TCPConnector)
    assert isinstance(connector._ssl, ssl.SSLContext)
    return connector._ssl


async def serves(server: Server) -> bool:
    """Return whether the server answers a request on a new connection."""
    async with limit(), server.raw() as http, http.get(MAPS) as response:
        return response.status == 200


async def ends(reader: asyncio.StreamReader) -> bytes:
    """Return what a connection sends until it is closed."""
    received = b""
    async with limit():
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                received += data
    return received


async def test_server_accepts_connections_beyond_silent_ones_of_one_source(server: Server) -> None:
    """A client opens more silent connections than its address may have."""
    open_files.raise_limit()
    async with silent(server.port, 1100) as opened:
        assert await serves(server)
        await until(lambda: sum(map(closed, opened)) >= 100)
        assert not closed(opened[-1])


@pytest.mark.long
async def test_server_accepts_connections_beyond_10000_silent_ones(tmp_path: Path) -> None:
    """Many clients open silent connections together."""
    files = open_files.raise_limit()
    count = min(10_000, files // 2 - 500)
    server = Server(State(tmp_path / "state"))
    async with server.running(), silent(server.port, count, sources=20):
        assert await serves(server)


@pytest.mark.process
async def test_server_accepts_connections_when_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client opens more connections than the server may have files, which are 300 here."""
    popen = subprocess.Popen

    def limited(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        return popen(["prlimit", "--nofile=300:300", *command], **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(subprocess, "Popen", limited)
    api_server = ApiServer(tmp_path / "a")
    api_server.start()
    try:
        port = int(api_server.kubeconfig.read_text().partition("https://127.0.0.1:")[2].split()[0])
        server = Server(State(api_server.kubeconfig.parent))
        server.port = port
        async with silent(port, 600, sources=3):
            assert await serves(server)
    finally:
        api_server.stop()


def test_limit_of_open_files_is_raised_to_the_maximum() -> None:
    """Systems start processes with 1,024 files, which 1,024 silent connections would take."""
    code = (
        "import resource; from kube_base.runtime import open_files; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200)); print(open_files.raise_limit())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout.strip() == b"200"
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0


async def test_silent_connection_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client connects and sends nothing."""
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    assert await ends(reader) == b""
    writer.close()


async def test_half_handshake_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client sends a part of its first TLS message."""
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"\x16\x03\x01\x02\x00\x01\x00")
    await ends(reader)
    writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        (b"",),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nX-A: ",),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /livez HTTP/1.1\r\nHost"),
    ],
)
async def test_half_request_head_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch, sent: tuple[bytes, ...]
) -> None:
    """A client completes the handshake, and sends a part of its first or second request."""
    monkeypatch.setattr(limited_http, "HEAD_SECONDS", 0.3)
    async with server.raw() as http:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=tls(http), server_hostname="localhost"
        )
    for part in sent:
        writer.write(part)
        if part.endswith(b"\r\n\r\n"):
            assert b"200 OK" in await reader.readline()
            await be_slow(0.1)
    assert b"HTTP/1.1" not in await ends(reader)
    writer.close()


async def test_slow_response_is_no_late_head(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch may last longer than a request head may take."""
    monkeypatch.setattr(limited_http, "HEAD_SECONDS", 0.2)
    async with server.raw() as http, http.get(MAPS, params={"watch": "1"}) as response:
        await be_slow(3 * limited_http.HEAD_SECONDS)
        metadata = {"metadata": {"name": "a"}}
        async with http.post(MAPS, json=metadata) as created:
            assert created.status == 201
        async with limit():
            assert b'"name":"a"' in await response.content.readline()


async def test_client_without_credentials_cannot_keep_its_connection(server: Server) -> None:
    """A client with an invalid token would otherwise use its connection again and again."""
    async with server.raw(Authorization="Bearer x") as http, http.get(MAPS) as response:
        assert response.status == 401
        assert response.headers["Connection"] == "close"


async def test_connections_with_credentials_are_not_evicted(tmp_path: Path) -> None:
    """A client without credentials opens connections from the address of the controller."""
    limits = ConnectionLimits(per_source=20)
    server = Server(State(tmp_path / "state"), connection_limits=limits)
    async with server.running(), server.raw() as http:
        async with http.get(MAPS, params={"watch": "1"}) as watch:
            flood = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(100)]
            async with http.post(MAPS, json={"metadata": {"name": "a"}}) as created:
                assert created.status == 201
            async with limit():
                assert b'"name":"a"' in await watch.content.readline()
        for _, writer in flood:
            writer.close()


async def test_connections_of_one_user_are_limited(tmp_path: Path) -> None:
    """A user without rights opens many connections, which takes memory and files from others."""
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("one,one,1\ntwo,two,2\n")
    limits = ConnectionLimits(per_user=5)
    server = Server(State(tmp_path / "state"), token_file=tokens, connection_limits=limits)
    async with server.running(), contextlib.AsyncExitStack() as stack:

        async def status(token: str) -> int:
            http = await stack.enter_async_context(server.raw(Authorization=f"Bearer {token}"))
            async with http.get("/api") as response:
                return response.status

        assert [await status("one") for _ in range(6)] == [200] * 5 + [429]
        assert await status("two") == 200


def test_table_closes_the_oldest_connection_without_credentials() -> None:
    """Clients of several addresses exceed the limits, after a user with credentials."""
    closed_ones: list[str] = []

    def connection(name: str, source: str) -> ClientConnection:
        return ClientConnection(source, 0.0, lambda: closed_ones.append(name))

    table = ConnectionTable(ConnectionLimits(per_source=2, per_user=1), total=4)
    user = connection("user", "a")
    assert table.add(user)
    assert table.authenticated(user, "u", exempt=False)
    for name, source in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c")):
        assert table.add(connection(name, source))
    assert closed_ones == ["a1", "a2"]
    assert len(table) == 4
    other = connection("other", "d")
    assert table.add(other)
    assert not table.authenticated(other, "u", exempt=False)
    assert table.authenticated(other, "u", exempt=True)
    table.remove(user)
    table.remove(user)
    assert len(table) == 3


def test_connections_of_the_installed_server_leave_no_error_in_its_log(tmp_path: Path) -> None:
    """The command runs another event loop than these tests, whose transports differ."""
    server, output = ApiServer(tmp_path / "state"), tmp_path / "log"
    server.start(output)
    try:
        assert server.ready()
    finally:
        server.stop()
    assert "Traceback" not in output.read_text()


def test_all_connections_of_a_table_are_closed() -> None:
    ended: list[str] = []
    table = ConnectionTable(ConnectionLimits(), 10)
    known = [ClientConnection(name, 0.0, functools.partial(ended.append, name)) for name in "abc"]
    for connection in known:
        assert table.add(connection)
    assert table.authenticated(known[1], "user", exempt=False)
    table.remove(known[2])
    table.close_all()
    assert sorted(ended) == ["a", "b"]
