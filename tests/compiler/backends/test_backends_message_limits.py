"""Sizes and counts of headers that both proxies accept, and connections that both keep alive."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from differential import proxies
from differential.proxies import PORT, Runner
from fakes import patience
from fakes.authorized_traffic import served
from fakes.envoy_serving import Answer, backend, host, plain, route_to
from fakes.loopback import loopback_network
from fakes.one_route import BACKEND
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.backends.nginx.data_plane_settings import PROXY_HEADER_BYTES
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings

RUNNERS = [
    pytest.param(proxies.with_nginx, id="nginx"),
    pytest.param(proxies.with_envoy, id="envoy"),
]
RULE = {"backendRefs": [BACKEND]}


def responding(lines: list[str]) -> Answer:
    """Return a backend that answers with these header lines."""
    head = "".join(f"{line}\r\n" for line in ["HTTP/1.1 200 OK", *lines, "Content-Length: 0", ""])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head.encode())

    return answer


RESPONSES = {
    "900 headers": ([f"X-{number}: {number}" for number in range(900)], 200),
    "header of 40,000 bytes": ([f"X-0: {'a' * 40_000}"], 200),
    "64 headers of 950 bytes": ([f"X-{n}: {'a' * 950}" for n in range(64)], 200),
    "header of 70,000 bytes": ([f"X-0: {'a' * 70_000}"], 502),
}


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(("lines", "expected"), RESPONSES.values(), ids=RESPONSES)
async def test_response_passes_up_to_the_limits_of_its_header(
    runner: Runner, lines: list[str], expected: int, tmp_path: Path
) -> None:
    async with served(runner, tmp_path, 0, RULE, answer=responding(lines)) as proxy:
        reader, writer = await asyncio.open_connection(proxy.address, PORT, limit=2**20)
        writer.write(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
        async with patience.limit():
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.close()
    first, *received = head.split("\r\n")
    assert int(first.split()[1]) == expected
    sent = {line.lower() for line in lines} if expected == 200 else set()
    assert {line.lower() for line in received if line.lower().startswith("x-")} == sent


def proxy_header(size: int) -> bytes:
    """Return a header of version 2 with an extension that no proxy knows, of ``size`` bytes."""
    addresses = bytes([203, 0, 113, 9, 192, 0, 2, 1]) + (5555).to_bytes(2) + (80).to_bytes(2)
    padding = size - 16 - len(addresses) - 3
    body = addresses + b"\xe0" + padding.to_bytes(2) + b"x" * padding
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + len(body).to_bytes(2) + body


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_long_proxy_headers_are_read_on_plain_and_tls_ports(
    runner: Runner, tmp_path: Path
) -> None:
    """Load balancers send the certificate of the client in an extension."""
    address = f"{loopback_network()}.1"
    known = ClientAddress("proxy-protocol", ("0.0.0.0/0",))
    async with backend("a") as endpoint:
        clusters = [ir.Cluster("a", (endpoint,)), ir.Cluster("t", (endpoint,), "tcp")]
        stream = ir_gateway.L4Listener(
            9000, "TCP", (ir_gateway.L4Host("", (ir_gateway.L4Backend("t"),)),)
        )
        gateway = plain(
            [host("", route_to("a"))], clusters, bind_address=address,
            settings=DataPlaneSettings(client_address=known), l4_listeners=(stream,),
        )  # fmt: skip
        async with runner(gateway, tmp_path):
            for port in (PORT, 9000):
                for size in (100, 1100, PROXY_HEADER_BYTES):
                    reader, writer = await asyncio.open_connection(address, port)
                    writer.write(proxy_header(size) + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    async with patience.limit():
                        assert (await reader.readline()).startswith(b"HTTP/1.1 200"), (port, size)
                    writer.close()


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_accepted_connections_of_streams_have_tcp_keepalive(
    runner: Runner, tmp_path: Path
) -> None:
    """A client that is gone, or a load balancer that drops silent connections, is noticed."""
    address = f"{loopback_network()}.1"
    async with backend("a") as endpoint:
        clusters = [ir.Cluster("a", (endpoint,)), ir.Cluster("t", (endpoint,), "tcp")]
        target = (ir_gateway.L4Backend("t"),)
        listeners = (
            ir_gateway.L4Listener(9000, "TCP", (ir_gateway.L4Host("", target),)),
            ir_gateway.L4Listener(
                9443, "TLS",
                (ir_gateway.L4Host("a.example", target), ir_gateway.L4Host("b.example", target)),
            ),
        )  # fmt: skip
        gateway = plain(
            [host("", route_to("a"))], clusters, bind_address=address, l4_listeners=listeners
        )
        async with runner(gateway, tmp_path):
            for port in (9000, 9443):
                reader, writer = await asyncio.open_connection(address, port)
                writer.write(client_hello("b.example") if port == 9443 else b"GET /")
                async with patience.limit():
                    while not (await keepalive_timers(port)):
                        await patience.pause()
                writer.close()
                del reader


def client_hello(name: str) -> bytes:
    """Return the first bytes of a handshake with this server name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


async def keepalive_timers(port: int) -> list[int]:
    """Return the remaining time of each keepalive timer of accepted connections, in clock ticks.

    The second number of the timer's column is 2 for keepalive.
    """
    lines = (await asyncio.to_thread(Path("/proc/net/tcp").read_text)).splitlines()[1:]
    timers = []
    for line in lines:
        columns = line.split()
        kind, _, ticks = columns[5].partition(":")
        if int(columns[1].rpartition(":")[2], 16) == port and columns[3] == "01" and kind == "02":
            timers.append(int(ticks, 16))
    return timers


def test_one_server_of_a_port_has_the_options_of_its_socket() -> None:
    target = (ir_gateway.L4Backend("t"),)
    hosts = tuple(ir_gateway.L4Host(name, target) for name in ("", "a.example", "b.example"))
    listener = ir_gateway.L4Listener(9443, "TLS", hosts)
    cluster = ir.Cluster("t", (ir.Endpoint("192.0.2.1", 1),), "tcp")
    gateway = plain([host("", route_to("t"))], [cluster], l4_listeners=(listener,))
    generated = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3")).generate(gateway)
    text = "".join(file.content.decode() for file in generated.file_set.files.values())
    listens = [line.split()[1] for line in text.splitlines() if "so_keepalive=55s:55s:3" in line]
    assert sorted(listens) == ["9443", "[::]:9443"]
