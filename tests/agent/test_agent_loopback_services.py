"""Services of a data plane on its own addresses.

A backend name that resolves to a loopback address reaches whatever listens there. So agents and
proxies serve their own interfaces on Unix sockets only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import patience
from fakes.agent_control_plane import ControlPlane, answering
from fakes.envoy_running import EnvoyControlPlane, listener, routes
from fakes.loopback import free_port
from gatehouse.dataplane.xds.resources import ResourceSet

pytestmark = pytest.mark.process

_LISTEN = "0A"


def _descendants(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from _descendants(int(child))


def _sockets(pid: int) -> Iterator[str]:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                yield target[8:-1]


def listening_ports(agent: int) -> set[int]:
    """Return the TCP ports on which an agent and its processes listen."""
    inodes = {inode for pid in _descendants(agent) for inode in _sockets(pid)}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {
        int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTEN and row[9] in inodes
    }


async def http_response(port: int) -> bytes:
    """Return the start of the response to an HTTP request; empty if there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer), contextlib.suppress(TimeoutError, ConnectionError):
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        async with asyncio.timeout(1):
            return await reader.read(100)
    return b""


@contextlib.contextmanager
def agent(proxy: str, environment: dict[str, str]) -> Iterator[int]:
    command = [sys.executable, "-m", "gatehouse", "agent", "--proxy", proxy]
    process = subprocess.Popen(command, env=dict(os.environ) | environment)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(patience.SECONDS)


async def test_envoy_and_its_agent_listen_only_where_configured(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    environment = plane.environment(tmp_path) | {
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}"
    }
    with agent("envoy", environment) as pid:
        await plane.served(ResourceSet([listener("l", port, "r"), routes("r")]))
        assert listening_ports(pid) == {port, health}


async def test_nginx_and_its_agent_listen_only_where_configured(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    environment = control_plane.environment(tmp_path) | {
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}"
    }
    with agent("nginx", environment) as pid:
        await control_plane.programmed(answering(port, "x"))
        others = listening_ports(pid) - {port, health}
        # The name server of upstreams, which knows only endpoints.
        assert len(others) <= 1
        assert [await http_response(other) for other in others] == [b""] * len(others)
