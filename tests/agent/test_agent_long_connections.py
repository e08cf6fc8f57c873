"""Connections in use through an NGINX whose configuration changes in another place."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from fakes.agent_command import agent
from fakes.agent_control_plane import ControlPlane, answering
from fakes.envoy_serving import listening
from fakes.loopback import free_port
from fakes.nginx_agent import get
from gatehouse.dataplane.file_set import File

pytestmark = pytest.mark.process

REQUEST = b"GET /used HTTP/1.1\r\nHost: a\r\n"
UPGRADE = b"Connection: upgrade\r\nUpgrade: websocket\r\n"


async def _upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Upgrade a connection, and echo its lines."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\n" + UPGRADE + b"\r\n")
    await _echo(reader, writer)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line)


def _used(web: int, l4_port: int, l4: int) -> tuple[File, ...]:
    """Return a location and an L4 server that forward to two endpoints."""
    headers = "proxy_set_header Upgrade websocket; proxy_set_header Connection upgrade;"
    forward = f"proxy_http_version 1.1; {headers} proxy_pass http://127.0.0.1:{web};"
    stream = f"server {{ listen 127.0.0.1:{l4_port}; proxy_pass 127.0.0.1:{l4}; }}\n"
    return (
        File.make("gatehouse/sites/used.conf", f"location /used {{ {forward} }}\n"),
        File.make("gatehouse/stream.conf", stream),
    )


def _limits(directory: Path) -> set[int]:
    """Return the limits in seconds of old workers in the main files of an agent."""
    texts = [path.read_text() for path in directory.rglob("*.conf") if path.is_file()]
    pattern = r"^worker_shutdown_timeout (\d+)s;"
    return {int(value) for text in texts for value in re.findall(pattern, text, re.MULTILINE)}


@pytest.mark.parametrize(("drain", "limit"), [("1", 60), ("90", 90)])
async def test_connections_in_use_stay_when_other_routes_change(
    control_plane: ControlPlane, tmp_path: Path, drain: str, limit: int
) -> None:
    """Each reload leaves a WebSocket and an L4 connection with their worker, which gets the
    documented limit."""
    port, l4_port = free_port(), free_port()
    environ = control_plane.environment(tmp_path) | {"GATEHOUSE_AGENT_DRAIN_SECONDS": drain}
    async with (
        listening(_upgrade) as web,
        listening(_echo) as l4,
        agent(environ, tmp_path / "log"),
    ):
        used = _used(web.port, l4_port, l4.port)
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "first", *used))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST + UPGRADE + b"\r\n")
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        connections = [(reader, writer), await asyncio.open_connection("127.0.0.1", l4_port)]
        for text in ("second", "third"):
            await control_plane.programmed(answering(port, text, *used))
            assert await get(port) == (200, text)
            for source, sink in connections:
                sink.write(f"{text}\n".encode())
                assert await source.readline() == f"{text}\n".encode()
        for _, sink in connections:
            sink.close()
        assert _limits(tmp_path) == {limit}
