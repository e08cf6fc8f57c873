"""Attacks by fields and responses that are about a connection: ``Connection``, 101, copies."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from differential import proxies
from differential.exchange import Request
from differential.proxies import PORT, Runner
from fakes import served_objects
from fakes.envoy_serving import backend, listening
from fakes.one_route import BACKEND, Object
from fakes.patience import limit, until
from fakes.served_objects import HOSTNAMES, RUNNERS, received
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Engine

TUNNEL = b"through the tunnel\n"
TO_OTHER = {"name": "other", "port": 80}
WEBSOCKET = ["Connection: Upgrade", "Upgrade: websocket"]


@contextlib.asynccontextmanager
async def switching(heads: list[str], protocol: str) -> AsyncIterator[ir.Endpoint]:
    """Run a backend that switches to a protocol, even unrequested, and echoes lines."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        lines = ["HTTP/1.1 101 Switching", "Connection: upgrade", f"Upgrade: {protocol}"]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        while line := await reader.readline():
            writer.write(line)

    async with listening(answer) as endpoint:
        yield endpoint


@contextlib.asynccontextmanager
async def recording(heads: list[str]) -> AsyncIterator[ir.Endpoint]:
    """Run a backend that answers 200 to every request, and records the heads in lower case."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with listening(answer) as endpoint:
        yield endpoint


def with_other(
    filters: list[Object], endpoint: ir.Endpoint, other: ir.Endpoint, hostnames: tuple[str, ...]
) -> Engine:
    """Return an engine with a route that has filters, and a Service ``other`` for them."""
    ports = [{"name": "p", "port": 80, "protocol": "TCP"}]
    rule = {"filters": filters, "backendRefs": [BACKEND]}
    service = (("Service", "n", "other"), {"ports": ports})
    result = served_objects.engine([rule], endpoint, service, hostnames=hostnames)
    slice_object = {
        "metadata": {
            "name": "other-1",
            "namespace": "n",
            "labels": {"kubernetes.io/service-name": "other"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "p", "port": other.port}],
        "endpoints": [{"addresses": [other.address]}],
    }
    key = ("EndpointSlice", "n", "other-1")
    result.commit({key: gateway_api.decode_gateway_api_object(key[0], slice_object)})
    return result


async def until_closed(address: str, upgrades: list[str], host: str = "a.example") -> bytes:
    """Send a request and a line after it. Return everything until the line or the end."""
    reader, writer = await asyncio.open_connection(address, PORT)
    lines = ["GET / HTTP/1.1", f"Host: {host}", *upgrades, "", ""]
    writer.write("\r\n".join(lines).encode() + TUNNEL)
    data = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(2):
            while TUNNEL not in data and (more := await reader.read(65536)):
                data += more
    writer.close()
    return data


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_backend_cannot_open_a_tunnel_that_the_client_did_not_ask_for(
    runner: Runner, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """A backend that answers 101 to a request without an upgrade: the client gets no tunnel."""
    heads: list[str] = []
    async with switching(heads, "websocket") as endpoint:
        rules = [{"backendRefs": [BACKEND]}]
        compiler = served_objects.engine(rules, endpoint, hostnames=hostnames)
        gateway = served_objects.gateway(compiler)
        async with served_objects.serving(runner, gateway, tmp_path):
            assert TUNNEL not in await until_closed(gateway.bind_address, [])
    assert heads


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_client_upgrades_no_http2_stream(
    runner: Runner, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """A client, by Upgrade or an extended CONNECT over HTTP/2, which has no upgrades of that
    kind here: no backend is asked for another protocol."""
    heads: list[str] = []

    async with recording(heads) as endpoint:
        rules = [{"backendRefs": [BACKEND]}]
        compiler = served_objects.engine(rules, endpoint, hostnames=hostnames)
        gateway = served_objects.gateway(compiler)
        async with served_objects.serving(runner, gateway, tmp_path) as client:
            assert (await served_objects.get(client, version=2)).status == 200
            for protocol in ("websocket", "SPDY/3.1", "h2c"):
                for headers in (
                    [("upgrade", protocol)],
                    [("connection", "upgrade"), ("upgrade", protocol)],
                ):
                    with contextlib.suppress(ConnectionError):
                        await served_objects.get(client, headers=headers, version=2)
                extended = Request(
                    "a.example", "CONNECT", "/", [(":protocol", protocol)], version=2
                )
                with contextlib.suppress(ConnectionError):
                    assert (await client.send(extended)).status in (0, 400, 403, 404, 405, 501)
    assert not [head for head in heads if "upgrade" in head or "connect" in head.split()[0]]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_copy_of_an_upgrade_leaves_the_tunnel_of_the_client(
    runner: Runner, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """A client whose WebSocket is mirrored to a backend that accepts WebSockets: the client's own
    tunnel opens and stays open."""
    heads: list[str] = []
    copies: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        copies.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        upgrade = "upgrade: websocket" in copies[-1]
        first = "101 Switching" if upgrade else "426 Upgrade Required"
        fields = "Connection: upgrade\r\nUpgrade: websocket\r\n" if upgrade else ""
        length = "" if upgrade else "Content-Length: 0\r\n"
        writer.write(f"HTTP/1.1 {first}\r\n{fields}{length}\r\n".encode())
        while line := await reader.readline():
            writer.write(b"copy of " + line)

    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": TO_OTHER}}
    async with switching(heads, "websocket") as endpoint, listening(answer) as other:
        gateway = served_objects.gateway(with_other([mirror], endpoint, other, hostnames))
        async with served_objects.serving(runner, gateway, tmp_path):
            reader, writer = await asyncio.open_connection(gateway.bind_address, PORT)
            head = ["GET / HTTP/1.1", "Host: a.example", *WEBSOCKET, "", ""]
            writer.write("\r\n".join(head).encode())
            async with limit():
                assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
                await until(lambda: copies)
                for _ in range(3):
                    writer.write(TUNNEL)
                    assert await reader.readline() == TUNNEL
            writer.close()


WITH_AUTH_REQUEST = [
    pytest.param(
        functools.partial(proxies.with_nginx, modules=("http_auth_request_module",)), id="nginx"
    ),
    pytest.param(proxies.with_envoy, id="envoy"),
]


@pytest.mark.process
@pytest.mark.parametrize("runner", WITH_AUTH_REQUEST)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_authorization_server_opens_no_tunnel(
    runner: Runner, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """An authorization server that answers 101 to a check: the client gets neither a tunnel nor
    the backend, whatever protocol it asks for."""
    reached: list[str] = []
    checks: list[str] = []
    auth = {
        "protocol": "HTTP",
        "backendRef": TO_OTHER,
        "http": {"path": "/check", "allowedResponseHeaders": ["X-User"]},
    }
    async with (
        switching(reached, "websocket") as endpoint,
        switching(checks, "websocket") as other,
    ):
        filters = [{"type": "ExternalAuth", "externalAuth": auth}]
        gateway = served_objects.gateway(with_other(filters, endpoint, other, hostnames))
        async with served_objects.serving(runner, gateway, tmp_path):
            for upgrades in (WEBSOCKET, [], ["Connection: Upgrade", "Upgrade: SPDY/3.1"]):
                data = await until_closed(gateway.bind_address, upgrades)
                assert TUNNEL not in data
                assert b" 101 " not in data
    assert checks
    assert not [head for head in checks if "upgrade" in head]
    assert not reached


NAMED = [
    "HTTP2-Settings",
    "close, HTTP2-Settings",
    "Keep-Alive",
    "keep-alive,Proxy-Connection, HTTP2-Settings",
]
OWN = ["X-Real-IP", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-For", "Host"]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_backend_gets_no_field_of_the_connection(
    runner: Runner, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """A client, with fields that are about its connection: they do not reach a backend."""
    fields = [("HTTP2-Settings", "hop"), ("Keep-Alive", "hop"), ("Proxy-Connection", "hop")]
    async with backend("s") as endpoint:
        rules = [{"backendRefs": [BACKEND]}]
        compiler = served_objects.engine(rules, endpoint, hostnames=hostnames)
        gateway = served_objects.gateway(compiler)
        async with served_objects.serving(runner, gateway, tmp_path) as client:
            for connection in NAMED:
                response = await served_objects.get(
                    client, headers=[("Connection", connection), *fields]
                )
                assert response.status == 200
                assert not [header for header in response.backend["headers"] if "hop" in header]
                assert received(response, "connection") == []


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_client_cannot_remove_what_the_proxy_sends(
    runner: Runner, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """A client that names headers of the proxy in Connection: the request is refused, or has
    them."""
    heads: list[str] = []
    async with recording(heads) as endpoint:
        rules = [{"backendRefs": [BACKEND]}]
        compiler = served_objects.engine(rules, endpoint, hostnames=hostnames)
        gateway = served_objects.gateway(compiler)
        async with served_objects.serving(runner, gateway, tmp_path):
            named = [f"Connection: {name}, close, upgrade" for name in OWN]
            requests = [[*fields, line] for line in named for fields in ([], WEBSOCKET[1:])]
            address = gateway.bind_address
            answers = await asyncio.gather(*(until_closed(address, lines) for lines in requests))
    assert {answer.split()[1] for answer in answers} <= {b"200", b"400"}
    assert len(heads) == len([answer for answer in answers if answer.split()[1] == b"200"])
    assert heads
    for head in heads:
        for line in ("host: a.example", "x-forwarded-host: a.example", "x-forwarded-proto: http"):
            assert f"\r\n{line}\r\n" in head
        assert "\r\nx-real-ip: 127.0.0.1\r\n" in head
        assert "\r\nx-forwarded-for: " in head


@pytest.mark.process
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_envoy_removes_what_connection_names(
    hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """A client that names fields in Connection, with and without an upgrade: they do not reach
    a backend (RFC 9110, 7.6.1)."""
    heads: list[str] = []
    named = ["Connection: X-Hop, upgrade", "Connection: COOKIE ,close"]
    fields = ["X-Hop: a", "x-hop: b", "Cookie: c=d", "X-Hops: e"]
    lines = [*named, *fields]
    upgrades = [
        [],
        *([f"Upgrade: {protocol}"] for protocol in ("websocket", "SPDY/3.1", "Spdy/3.1")),
    ]
    upgrades.append(["Upgrade:", *WEBSOCKET[1:]])
    async with switching(heads, "websocket") as endpoint:
        rules = [{"backendRefs": [BACKEND]}]
        compiler = served_objects.engine(rules, endpoint, hostnames=hostnames)
        gateway = served_objects.gateway(compiler)
        async with served_objects.serving(proxies.with_envoy, gateway, tmp_path):
            for host in ("a.example", f"A.Example:{PORT}", "a.example."):
                for upgrade in upgrades:
                    heads.clear()
                    await until_closed(gateway.bind_address, [*upgrade, *lines], host)
                    (head,) = heads
                    assert ("\r\nupgrade: " in head) == bool(upgrade)
                    assert "x-hop:" not in head
                    assert "cookie:" not in head
                    assert "x-hops: e" in head
