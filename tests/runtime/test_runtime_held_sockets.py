"""Listening sockets that are held, and the start of a process that changes its parent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable

import pytest
import structlog

from gatehouse.runtime.held_sockets import HeldSockets
from gatehouse.runtime.watched_process import WatchedProcess, start_watched


@pytest.fixture
async def owner() -> AsyncIterator[tuple[WatchedProcess, socket.socket]]:
    """Yield a process, and a socket that it inherited."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = start_watched(["sleep", "60"], pass_fds=[server.fileno()])
        yield process, server
        await process.kill()


async def test_sockets_are_received_once_and_closed_on_release(
    owner: tuple[WatchedProcess, socket.socket],
) -> None:
    process, server = owner
    calls = 0

    async def receive(_: WatchedProcess) -> Iterable[int]:
        nonlocal calls
        calls += 1
        return [server.dup().detach()]

    held = HeldSockets(structlog.get_logger("test"), receive)
    for _ in range(3):
        await held.hold(process)
    assert calls == 1
    address = server.getsockname()
    server.close()
    await process.kill()
    socket.create_connection(address).close()
    held.release()
    assert held.descriptors == ()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def test_failure_is_logged_once_and_holds_nothing(
    owner: tuple[WatchedProcess, socket.socket],
) -> None:
    calls = 0

    async def receive(_: WatchedProcess) -> Iterable[int]:
        nonlocal calls
        calls += 1
        raise PermissionError("forbidden")

    held = HeldSockets(structlog.get_logger("test"), receive)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await held.hold(owner[0])
    assert [log["event"] for log in logs] == ["listening sockets not held"]
    assert (calls, held.descriptors) == (1, ())


def test_starter_reports_a_missing_program() -> None:
    """The program that starts NGINX prints the negative error number."""
    from gatehouse.runtime import orphan_starter

    command = [sys.executable, "-I", "-S", orphan_starter.__file__, os.devnull, "/missing", "nginx"]
    result = subprocess.run(command, capture_output=True, text=True, input="", check=True)
    assert result.stdout == "-2\n"
