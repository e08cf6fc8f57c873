"""Attacks by source addresses: a client claims the address of another one."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest

from differential.proxies import PORT, Runner
from fakes.apiservers import apiserver, server_name_at, version_1
from fakes.authority import Authority
from fakes.envoy_serving import backend, host, plain, route_to
from fakes.loopback import loopback_network
from fakes.patience import limit
from fakes.served_objects import RUNNERS
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.proxy_settings import NginxClientAddress
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings

pytestmark = pytest.mark.process

TRUSTED, OTHER = "127.0.8.1", "127.0.9.1"
FORGED = "10.0.0.1"


def address() -> str:
    return f"{loopback_network()}.1"


async def sent(to: str, source: str, *lines: str) -> dict[str, str]:
    """Send a request with header lines from an address. Return the headers at the backend."""
    reader, writer = await asyncio.open_connection(to, PORT, local_addr=(source, 0))
    request = ["GET / HTTP/1.1", "Host: a", "Connection: close", *lines, "", ""]
    writer.write("\r\n".join(request).encode())
    async with limit():
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 200 " in head.split(b"\r\n")[0], head
    return dict(json.loads(body)["headers"])


SPELLINGS = [
    [f"X-Forwarded-For: {FORGED}"],
    [f"x-forwarded-FOR: {FORGED}", f"X-Forwarded-For: {FORGED}"],
    [f"X-Forwarded-For: {TRUSTED}, {FORGED}, {TRUSTED}"],
    [f"X-Forwarded-For: {FORGED}:80, [::1]:80"],
    [f"X-Forwarded-For: unknown, {FORGED},,"],
    [f"X_Forwarded_For: {FORGED}", f"X-Real-IP: {FORGED}", f"Forwarded: for={FORGED}"],
    [f"X-Envoy-External-Address: {FORGED}", f"True-Client-IP: {FORGED}"],
]


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("recursive", [True, False])
async def test_client_cannot_claim_the_address_of_another_client(
    runner: Runner, recursive: bool, tmp_path: Path
) -> None:
    """A client that connects itself, and one behind a trusted proxy, with every header that names
    an address: the backend sees the address that the connection or the proxy proves."""
    own = NginxClientAddress(recursive=recursive)
    known = ClientAddress("x-forwarded-for", ("127.0.8.0/24",), own)
    async with backend("a") as endpoint:
        gateway = plain(
            [host("", route_to("a"))],
            [ir.Cluster("a", (endpoint,))],
            bind_address=address(),
            settings=DataPlaneSettings(client_address=known),
        )
        async with runner(gateway, tmp_path):
            to = gateway.bind_address
            for lines in SPELLINGS:
                request_headers = await sent(to, OTHER, *lines, "X-Forwarded-Proto: https")
                assert request_headers["x-real-ip"] == OTHER, lines
                assert request_headers["x-forwarded-proto"] == "http", lines
                assert request_headers["x-forwarded-for"].rpartition(",")[2].strip() == OTHER, lines
                assert "forwarded" not in request_headers
            # A proxy appends the address that it sees to what its client sent.
            for claimed in (FORGED, f"{TRUSTED}, {FORGED}", f"unknown, {FORGED}"):
                lines = [f"X-Forwarded-For: {claimed}, 198.51.100.7"]
                assert (await sent(to, TRUSTED, *lines))["x-real-ip"] == "198.51.100.7", claimed
            assert (await sent(to, TRUSTED))["x-real-ip"] == TRUSTED


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("source", ["x-forwarded-for", "proxy-protocol", "none"])
async def test_address_outside_a_list_of_sources_cannot_pass_it(
    runner: Runner, source: Any, tmp_path: Path
) -> None:
    """A client that is not in the list of a hostname, with a PROXY header or without: it reaches
    the server only if a trusted proxy says so."""
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.file))
    trust.check_hostname = False
    known = None if source == "none" else ClientAddress(source, ("127.0.8.0/24",))
    async with apiserver(authority, "a") as server, backend("http") as endpoint:
        listed = ir_gateway.L4Host(
            "api.test", (ir_gateway.L4Backend("a"),), sources=("127.0.7.0/24", "203.0.113.0/24")
        )
        base = plain(
            [host("", route_to("http"))],
            [ir.Cluster("a", (server.endpoint,), "tcp"), ir.Cluster("http", (endpoint,))],
            bind_address=address(),
            settings=DataPlaneSettings(client_address=known),
        )
        gateway = with_tls(base, listed)
        async with runner(gateway, tmp_path):

            async def reached(peer: str, claimed: str = "") -> str:
                header = version_1(claimed, "192.0.2.1", 443) if claimed else b""
                to = (gateway.bind_address, 8443)
                return await server_name_at(to, trust, "api.test", source=peer, header=header)

            assert await reached(OTHER) == ""
            assert await reached(OTHER, "203.0.113.9") == ""
            assert await reached(OTHER, "127.0.7.1") == ""
            if source == "proxy-protocol":
                assert await reached(TRUSTED, "203.0.113.9") == "a"
                assert await reached(TRUSTED, "198.51.100.9") == ""
            else:
                assert await reached(TRUSTED, "203.0.113.9") == ""
                assert await reached("127.0.7.1") == "a"


def with_tls(
    gateway: ir_gateway.GatewayConfiguration, *hosts: ir_gateway.L4Host
) -> ir_gateway.GatewayConfiguration:
    """Return the gateway with a port for TLS passthrough."""
    listener = ir_gateway.L4Listener(8443, "TLS", hosts)
    return msgspec.structs.replace(gateway, l4_listeners=(listener,))
