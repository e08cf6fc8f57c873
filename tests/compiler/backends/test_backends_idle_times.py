"""Idle times of responses and upgraded connections, which are the same on both proxies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from differential.proxies import PORT, Runner
from fakes import patience, resource_fields
from fakes.envoy_serving import host, listening, plain, route_to
from fakes.loopback import loopback_network
from fakes.served_objects import RUNNERS
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.backends.upgrades import STREAM_IDLE_SECONDS
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir import settings as ir_settings

SHORT = ir_settings.Settings(proxy=ir_settings.ProxySettings(read=1.0, send=1.0))


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Upgrade a connection, and echo its lines."""
    await reader.readuntil(b"\r\n\r\n")
    fields = b"Connection: upgrade\r\nUpgrade: websocket\r\n"
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\n" + fields + b"\r\n")
    while line := await reader.readline():
        writer.write(line)


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_idle_websocket_ends_after_the_configured_time_only(
    runner: Runner, tmp_path: Path
) -> None:
    """The read timeout of a policy ends an idle WebSocket of its route, and no other one."""

    async def opened(address: str, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(address, PORT)
        lines = [f"GET {path} HTTP/1.1", "Host: a.example", "Connection: upgrade"]
        writer.write("\r\n".join([*lines, "Upgrade: websocket", "", ""]).encode())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async with listening(_echo) as endpoint:
        routes = (
            route_to("c", "ns/r/1/0", "/short", settings=SHORT),
            route_to("c", "ns/r/0/0", "/"),
        )
        gateway = msgspec.structs.replace(
            plain([host("a.example", *routes)], [ir.Cluster("c", (endpoint,))]),
            bind_address=f"{loopback_network()}.1",
        )
        async with runner(gateway, tmp_path), patience.limit():
            reader, writer = await opened(gateway.bind_address, "/")
            short, end = await opened(gateway.bind_address, "/short")
            assert await short.read() == b""
            writer.write(b"still open\n")
            assert await reader.readline() == b"still open\n"
            writer.close()
            end.close()


def test_default_idle_time_is_that_of_both_proxies() -> None:
    """The configurations of both proxies have the documented 5 minutes, and a timeout of requests
    does not make upgraded connections unlimited."""
    assert STREAM_IDLE_SECONDS == 300
    cluster = ir.Cluster("c", (ir.Endpoint("127.0.0.1", 1),))
    gateway = plain([host("a.example", route_to("c", request_timeout=10.0))], [cluster])
    generator = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3"))
    files = generator.generate(gateway).file_set.files
    text = files["gatehouse/http.conf"].content.decode()
    assert "\nproxy_read_timeout 300000ms;\n" in text
    assert "\nproxy_send_timeout 300000ms;\n" in text
    resources = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(gateway).resources
    formatted = resource_fields.format_resources(resources, whole=True)
    assert _values(formatted["Listener"], "stream_idle_timeout") == ["300s"]
    assert _values(formatted["ScopedRouteConfiguration"], "idle_timeout") == ["300s"]


def _values(fields: Any, name: str) -> list[Any]:
    """Return all values of a field, at any depth."""
    if isinstance(fields, dict):
        own = [fields[name]] if name in fields else []
        return own + [value for inner in fields.values() for value in _values(inner, name)]
    if isinstance(fields, list):
        return [value for inner in fields for value in _values(inner, name)]
    return []
