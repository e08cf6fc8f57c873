"""Attacks by protocol upgrades: a client opens a tunnel that no rule applies to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from differential import proxies
from differential.proxies import PORT, Runner
from fakes import served_objects
from fakes.envoy_serving import listening
from fakes.one_route import BACKEND
from fakes.served_objects import HOSTNAMES, RUNNERS
from gatehouse.compiler.ir import http as ir

TUNNEL = b"through the tunnel\n"


@contextlib.asynccontextmanager
async def willing(heads: list[str]) -> AsyncIterator[ir.Endpoint]:
    """Run a backend that switches to every protocol that it is asked for, and echoes lines."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            heads.append(head)
            upgrades = [line for line in head.split("\r\n") if line.startswith("upgrade:")]
            if not upgrades:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                continue
            protocol = upgrades[0].partition(":")[2].strip()
            lines = ["HTTP/1.1 101 Switching", "Connection: upgrade", f"Upgrade: {protocol}"]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            while line := await reader.readline():
                writer.write(line)

    async with listening(answer) as endpoint:
        yield endpoint


async def echoed(address: str, upgrades: list[str], version: str = "HTTP/1.1") -> bytes:
    """Ask for an upgrade by header lines. Return what comes back through the connection."""
    reader, writer = await asyncio.open_connection(address, PORT)
    lines = [f"GET / {version}", "Host: a.example", *upgrades, "", ""]
    writer.write("\r\n".join(lines).encode() + TUNNEL)
    received = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            while TUNNEL not in received and (data := await reader.read(65536)):
                received += data
    writer.close()
    return received


SETTINGS = "HTTP2-Settings: AAMAAABkAAQAAP__"
OTHERS = [
    ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", SETTINGS],
    ["Connection: upgrade", "Upgrade: H2C"],
    ["Connection: Upgrade", "Upgrade: websocket, h2c"],
    ["Connection: Upgrade", "Upgrade: h2c, websocket"],
    ["Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c"],
    ["Connection: Upgrade", "Upgrade: h2c", "Upgrade: websocket"],
    ["Connection: Upgrade", "Upgrade: websocket/13"],
    ["Connection: Upgrade", "Upgrade: SPDY/3"],
    ["Connection: Upgrade", "Upgrade: SPDY/3.11"],
    ["Connection: Upgrade", "Upgrade: SPDY/3x1"],
    ["Connection: Upgrade", "Upgrade: spdy/3.1, websocket"],
    ["Connection: Upgrade", "Upgrade: websocket, SPDY/3.1"],
    ["Connection: Upgrade", "Upgrade: 1:websocket"],
    ["Upgrade: websocket"],
    ["Connection: keep-alive", "Upgrade: websocket"],
    ["Connection: X-Upgrade, Upgrades", "Upgrade: SPDY/3.1"],
    ["Connection: Upgrade", "Upgrade: TLS/1.0"],
    ["Connection: Upgrade", "Upgrade: connect-udp", "Capsule-Protocol: ?1"],
    ["Connection: Upgrade", "Upgrade: x\twebsocket"],
    ["Connection: Upgrade", "Upgrade:"],
    ["Connection: Upgrade", "Upgrade: :websocket"],
    ["Connection: Upgrade", "Upgrade: ,"],
]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_client_gets_a_tunnel_for_two_protocols_only(
    runner: Runner, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """A client, with an Upgrade header, to a backend that accepts every protocol: only WebSockets
    and kubectl's SPDY open a tunnel, and the backend sees no other protocol and no HTTP/2
    settings."""
    heads: list[str] = []
    async with willing(heads) as endpoint:
        rules = [{"backendRefs": [BACKEND]}]
        compiler = served_objects.engine(rules, endpoint, hostnames=hostnames)
        gateway = served_objects.gateway(compiler)
        async with served_objects.serving(runner, gateway, tmp_path):
            address = gateway.bind_address
            answers = await asyncio.gather(*(echoed(address, upgrades) for upgrades in OTHERS))
            for upgrades, answer in zip(OTHERS, answers, strict=True):
                assert TUNNEL not in answer, upgrades
                assert b" 101 " not in answer, upgrades
            assert not [
                head for head in heads if "\r\nupgrade:" in head or "http2-settings" in head
            ]
            for protocol in ("websocket", "WebSocket", "SPDY/3.1", "spdy/3.1", "Spdy/3.1"):
                for connection in ("Upgrade", "keep-alive, upgrade", "UPGRADE ,close"):
                    upgrades = [f"Connection: {connection}", f"Upgrade: {protocol}"]
                    answer = await echoed(address, upgrades)
                    assert b" 101 " in answer.split(b"\r\n")[0], upgrades
                    assert answer.endswith(TUNNEL)
                    assert f"upgrade: {protocol.lower()}\r\n" in heads[-1]


@pytest.mark.process
@pytest.mark.parametrize(
    ("runner", "status"),
    [
        pytest.param(proxies.with_nginx, b"200", id="nginx"),
        pytest.param(proxies.with_envoy, b"403", id="envoy"),
    ],
)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_http_1_0_has_no_upgrades(
    runner: Runner, status: bytes, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """RFC 9110, 7.8: "A server that receives an Upgrade header field in an HTTP/1.0 request MUST
    ignore that Upgrade field."."""
    heads: list[str] = []
    async with willing(heads) as endpoint:
        rules = [{"backendRefs": [BACKEND]}]
        compiler = served_objects.engine(rules, endpoint, hostnames=hostnames)
        gateway = served_objects.gateway(compiler)
        async with served_objects.serving(runner, gateway, tmp_path):
            for upgrades in (["Upgrade: websocket"], ["Upgrade:", "Upgrade: SPDY/3.1"]):
                lines = ["Connection: Upgrade", *upgrades]
                answer = await echoed(gateway.bind_address, lines, "HTTP/1.0")
                assert answer.split()[1] == status
                assert TUNNEL not in answer
    assert not [head for head in heads if "\r\nupgrade:" in head]
