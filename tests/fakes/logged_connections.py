"""A gateway of both proxies with a TCP, TLS or UDP route for each reason in the access log."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

from cryptography import x509

from fakes import patience
from fakes.authority import Authority
from fakes.envoy_serving import listening
from fakes.logged_gateways import LoggedGateway, logged
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.dataplane.origin import Origin

SERVICE = Origin("Service", "shop", "db")
CLOSED = http.Endpoint("127.0.0.1", 9)
TLS, TCP, UDP, BROKEN, UNROUTED = 8443, 9000, 9000, 9001, 9002


def route(name: str, kind: str = "TLSRoute") -> Origin:
    return Origin(kind, "shop", name)


def gateway(
    served: http.Endpoint, datagrams: http.Endpoint, certificate: ir.Certificate, **more: Any
) -> ir.GatewayConfiguration:
    to = {name: (ir.L4Backend(name),) for name in ("broken", "c", "none", "u")}
    mostly_empty = (ir.L4Backend("c"), ir.L4Backend("none", 1_000_000))
    hosts = (
        ir.L4Host("*.wild.test", to["c"], origin=route("wild")),
        ir.L4Host("broken.test", to["broken"], origin=route("broken")),
        ir.L4Host("empty.test", to["none"], origin=route("empty")),
        ir.L4Host("end.test", to["c"], (certificate.name,), origin=route("end")),
        ir.L4Host("half.test", to["c"], rejected=1_000_000, origin=route("half")),
        ir.L4Host("invalid.test", rejected=1, origin=route("invalid")),
        ir.L4Host("listed.test", to["c"], sources=("192.0.2.0/24",), origin=route("listed")),
        ir.L4Host("mostly.test", mostly_empty, origin=route("mostly")),
        ir.L4Host("pass.test", to["c"], origin=route("pass"), rule=2),
        ir.L4Host("unrouted.test"),
    )
    one = {
        (TCP, "TCP"): ir.L4Host("", to["c"], origin=route("tcp", "TCPRoute")),
        (UDP, "UDP"): ir.L4Host("", to["u"], origin=route("udp", "UDPRoute")),
        (BROKEN, "TCP"): ir.L4Host("", to["broken"], origin=route("down", "TCPRoute")),
        (UNROUTED, "TCP"): ir.L4Host(""),
    }
    listeners = [ir.L4Listener(TLS, "TLS", hosts)]
    listeners += [ir.L4Listener(port, "UDP" if kind == "UDP" else "TCP", (host,))
                  for (port, kind), host in one.items()]  # fmt: skip
    return ir.GatewayConfiguration(
        "ns/gw",
        l4_listeners=tuple(sorted(listeners, key=lambda item: (item.port, item.protocol))),
        clusters=(
            http.Cluster("broken", (CLOSED,), "tcp", origin=SERVICE),
            http.Cluster("c", (served,), "tcp", origin=SERVICE),
            http.Cluster("none", (), "tcp", origin=SERVICE),
            http.Cluster("u", (datagrams,), "udp", origin=SERVICE),
        ),
        certificates=(certificate,),
        **more,
    )


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello 1\n")
    while data := await reader.read(1024):
        writer.write(data)
    writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self.transport.sendto(data * 2, addr)


def certificate(authority: Authority) -> ir.Certificate:
    chain, key = authority.issue("end", x509.DNSName("end.test"))
    return ir.Certificate("end", chain.read_bytes(), ir.SecretBytes(key.read_bytes()))


@contextlib.asynccontextmanager
async def serving(
    proxy: str, authority: Authority, **more: Any
) -> AsyncIterator[tuple[LoggedGateway, http.Endpoint, http.Endpoint]]:
    loop = asyncio.get_running_loop()
    async with listening(_echo) as endpoint:
        transport, _ = await loop.create_datagram_endpoint(_Datagrams, local_addr=("127.0.0.1", 0))
        datagrams = http.Endpoint("127.0.0.1", transport.get_extra_info("sockname")[1])
        try:
            configured = gateway(endpoint, datagrams, certificate(authority), **more)
            async with logged(proxy, configured) as served:
                yield served, endpoint, datagrams
        finally:
            transport.close()


async def send(served: LoggedGateway, port: int, data: bytes, header: bytes = b"") -> bytes:
    """Send data after a PROXY header. Return the greeting and the echo, or what came of them."""
    reader, writer = await asyncio.open_connection(served.address, port)
    try:
        writer.write(header + data)
        async with patience.limit():
            return await reader.readexactly(8 + len(data))
    except asyncio.IncompleteReadError as error:
        return error.partial
    except ConnectionError:
        return b""
    finally:
        writer.close()


def exchange_datagram(served: LoggedGateway, data: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.settimeout(patience.SECONDS)
        own.sendto(data, (served.address, UDP))
        return own.recv(1024)
