"""External names with real proxies and a real name server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from differential import proxies
from fakes import envoy_serving
from fakes.dns_server import NameServer
from fakes.loopback import loopback_network
from fakes.patience import until_equal
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import NameResolution

NAME = "api.example.net"
SERVERS = ("127.0.0.1", "127.0.0.2")


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[NameServer]:
    address = f"{loopback_network()}.53"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        try:
            listening.bind((address, 53))
        except PermissionError:
            pytest.skip("port 53 needs root")
        with contextlib.closing(NameServer(listening, tmp_path / address, NAME)) as server:
            yield server


@contextlib.asynccontextmanager
async def backends() -> AsyncIterator[int]:
    """Run two backends on one port, whose responses are their addresses and the Host header."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            request = await reader.readuntil(b"\r\n\r\n")
            host = next(e for e in request.split(b"\r\n") if e.lower().startswith(b"host: "))
            text = writer.get_extra_info("sockname")[0].encode() + b" " + host[6:]
            head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text)
            writer.write(head + text)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, SERVERS[0], 0) as first:
        port = first.sockets[0].getsockname()[1]
        async with await asyncio.start_server(answer, SERVERS[1], port):
            yield port


def gateway_of(name_server: NameServer, port: int) -> ir_gateway.GatewayConfiguration:
    resolution = NameResolution((name_server.file.name,), timeout=1.0, cache_ttl=1.0)
    cluster = ir.Cluster("c-outside", (ir.Endpoint(NAME, port),), resolution=resolution)
    route = envoy_serving.route_to("c-outside", rewrite=ir.Rewrite(hostname=NAME))
    address = f"{loopback_network()}.1"
    gateway = envoy_serving.plain([envoy_serving.host("", route)], [cluster])
    return msgspec.structs.replace(gateway, bind_address=address)


async def until_answered(address: str, expected: str) -> None:
    async with aiohttp.ClientSession() as session:

        async def text() -> str:
            async with session.get(f"http://{address}:{proxies.PORT}/") as response:
                return await response.text()

        await until_equal(text, expected)


@pytest.mark.process
@pytest.mark.parametrize("serve", [proxies.with_nginx, proxies.with_envoy])
async def test_proxy_follows_addresses_of_external_name(
    serve: proxies.Runner, name_server: NameServer, tmp_path: Path
) -> None:
    name_server.answers(SERVERS[0])
    async with backends() as port:
        gateway = gateway_of(name_server, port)
        async with serve(gateway, tmp_path):
            await until_answered(gateway.bind_address, f"{SERVERS[0]} {NAME}")
            name_server.answers(SERVERS[1])
            await until_answered(gateway.bind_address, f"{SERVERS[1]} {NAME}")


@pytest.mark.process
@pytest.mark.parametrize("serve", [proxies.with_nginx, proxies.with_envoy])
async def test_proxy_serves_other_routes_when_no_name_server_answers(
    serve: proxies.Runner, name_server: NameServer, tmp_path: Path
) -> None:
    name_server.close()
    async with backends() as port:
        gateway = gateway_of(name_server, port)
        inside = ir.Cluster("c-inside", (ir.Endpoint(SERVERS[0], port),))
        (listener,) = gateway.listeners
        (outside,) = listener.virtual_hosts
        route = envoy_serving.route_to("c-inside", "ns/i/0/0", rewrite=ir.Rewrite(hostname="in"))
        both = (outside, envoy_serving.host("inside.example", route))
        listener = msgspec.structs.replace(listener, virtual_hosts=both)
        clusters = (inside, *gateway.clusters)
        gateway = msgspec.structs.replace(gateway, listeners=(listener,), clusters=clusters)
        async with serve(gateway, tmp_path), aiohttp.ClientSession() as session:
            where = f"http://{gateway.bind_address}:{proxies.PORT}/"
            async with session.get(where, headers={"Host": "inside.example"}) as response:
                assert await response.text() == f"{SERVERS[0]} in"
            async with session.get(where) as response:
                assert response.status in (502, 503, 504)


@pytest.mark.parametrize(
    ("version", "tls", "problem"),
    [
        ("1.27.2", None, "ExternalName Services require NGINX 1.27.3 or newer"),
        (
            "1.31.3",
            ir.BackendTls("a.example", "", (ir.SubjectName("dns", "b.example"),)),
            "subjectAltNames are not supported for ExternalName Services by NGINX; use Envoy",
        ),
    ],
)
def test_nginx_reports_external_names_that_it_cannot_serve(
    version: str, tls: ir.BackendTls | None, problem: str
) -> None:
    resolution = NameResolution(("192.0.2.53",))
    cluster = ir.Cluster("c-a", (ir.Endpoint(NAME, 80),), tls=tls, resolution=resolution)
    hosts = [envoy_serving.host("", envoy_serving.route_to("c-a"))]
    able = nginx.NginxCapabilities.parse(version, connectors=True)
    generated = nginx.NginxGenerator(able).generate(envoy_serving.plain(hosts, [cluster]))
    assert [finding.reason for finding in generated.unsupported] == [problem]
