"""Attacks by connections: a client opens connections until a process reaches its limit of files.

Systems start processes with a soft limit of 1,024 files. Each long-running process raises it to its
hard limit at its start, and an idle connection takes little memory.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.installation import Installation
from fakes.patience import until, wait_until
from fakes.process import ApiServer
from gatehouse.standalone import process_records

SOFT, HARD = 1024, 4096
PARTS = ("apiserver", "controller", "node")
CONNECTIONS = 1000
MAX_CONNECTION_BYTES = 5_000
"""Memory of a connection that has sent nothing. It was 52 KB, and is 1.2 KB."""

pytestmark = pytest.mark.process


def open_file_limits(pid: int) -> tuple[int, int]:
    """Return the soft and the hard limit of open files of a process."""
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            soft, hard = line.split()[3:5]
            return int(soft), int(hard)
    raise AssertionError("no limit of open files")


def limits(started: Installation, name: str) -> tuple[int, int] | None:
    """Return the limits of a part of an installation, or None if it does not run yet."""
    record = process_records.recorded(started.state / "run" / f"{name}.json")
    return None if record is None else open_file_limits(record.pid)


def until_accepted(pid: int, count: int) -> None:
    """Wait until a process has accepted connections."""
    wait_until(lambda: sum(map(is_socket, Path(f"/proc/{pid}/fd").iterdir())) >= count)


def is_socket(file: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return str(file.readlink()).startswith("socket:")
    return False


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no resident memory")


@pytest.fixture
def api_server(tmp_path: Path) -> Iterator[ApiServer]:
    result = ApiServer(tmp_path / "api-server")
    result.start()
    yield result
    result.stop()


async def test_processes_may_open_as_many_files_as_the_system_allows(tmp_path: Path) -> None:
    """The API server, the controller and the node start with the limits of a common system."""
    started = Installation(tmp_path)
    started.command = (
        *("prlimit", f"--nofile={SOFT}:{HARD}"),
        *(sys.executable, "-m", "gatehouse"),
    )
    started.start()
    try:
        async with started.client():
            pass

        async def raised() -> bool:
            return all(limits(started, part) == (HARD, HARD) for part in PARTS)

        await until(raised)
    finally:
        started.stop()


def test_silent_connections_take_little_memory(api_server: ApiServer) -> None:
    """Clients without credentials open connections, from two addresses, and send nothing."""
    text = api_server.kubeconfig.read_text()
    port = int(text.partition("https://127.0.0.1:")[2].split()[0])
    assert api_server.process is not None
    pid = api_server.process.pid
    opened: list[socket.socket] = []

    def open_connections(count: int) -> None:
        for number in range(count):
            source = (f"127.0.1.{number % 4 + 1}", 0)
            address = ("127.0.0.1", port)
            opened.append(socket.create_connection(address, 10, source_address=source))
        until_accepted(pid, len(opened))

    try:
        # The first ones fill tables and pools that do not grow with each connection.
        open_connections(200)
        before = resident_bytes(pid)
        open_connections(CONNECTIONS)
        used = (resident_bytes(pid) - before) / CONNECTIONS
    finally:
        for connection in opened:
            connection.close()
    assert used < MAX_CONNECTION_BYTES, f"{used:.0f} bytes for each connection"
