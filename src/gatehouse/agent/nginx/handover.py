"""Hand-over of NGINX's listening sockets to the agent, by the protocol of NGINX's own upgrade.

On SIGUSR2 a master executes the file that its first argument names, which inherits the sockets.
That argument names a script of the agent, which sends them and exits. The master then continues.

NGINX does not read its configuration at a SIGHUP meanwhile, and its PID file has another name. It
ignores SIGUSR2 as long as the process that started it is its parent.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shlex
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gatehouse.agent.nginx.paths import NginxPaths
from gatehouse.runtime import procfs, socket_sender
from gatehouse.runtime.watched_process import WatchedProcess
from kube_base.runtime import private_files

RECEIVING_SECONDS = socket_sender.SENDING_SECONDS + 1.0
"""Timeout in seconds of a hand-over, which ends when the PID file has its name again."""

_POLL_SECONDS = 0.002

T = TypeVar("T")


def write_sender(paths: NginxPaths) -> Path | None:
    """Write the script that a master executes, and return its path.

    None: programs may not be executed in the directories of the agent. Raises OSError.
    """
    words = (sys.executable, "-I", "-S", socket_sender.__file__, str(paths.handover_socket))
    script = f"#!/bin/sh\nexec {shlex.join(words)}\n"
    for path in paths.senders:
        if not os.statvfs(path.parent).f_flag & os.ST_NOEXEC:
            # A full disk must not matter at a restart.
            if not path.is_file() or path.read_text() != script:
                private_files.replace_private_file(path, script.encode())
                path.chmod(0o700)
            return path
    return None


async def receive_sockets(paths: NginxPaths, master: WatchedProcess) -> list[int]:
    """Return duplicates of the listening sockets of a detached master, which has workers.

    It must not be reloaded meanwhile. Raises OSError.
    """
    title = procfs.command_line(master.pid)
    if not any(f"master process {sender} " in title for sender in paths.senders):
        raise OSError(
            "NGINX has no script that sends them: an earlier version of the agent started it, or "
            "the directories of the agent are full or mounted noexec"
        )
    try:
        return await _receive(paths, master)
    finally:
        paths.handover_socket.unlink(missing_ok=True)


async def _receive(paths: NginxPaths, master: WatchedProcess) -> list[int]:
    paths.handover_socket.unlink(missing_ok=True)
    descriptors: list[int] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.setblocking(False)
        server.bind(str(paths.handover_socket))
        server.listen()
        master.signal(signal.SIGUSR2)
        try:
            async with asyncio.timeout(RECEIVING_SECONDS):
                await _read(server, descriptors)
                await _when_ready(functools.partial(_check_continued, paths, master))
        except BaseException as error:
            _close(descriptors)
            if isinstance(error, TimeoutError):
                raise TimeoutError(
                    f"no sockets received within {RECEIVING_SECONDS:.0f} s"
                ) from error
            raise
    return descriptors


async def _read(server: socket.socket, descriptors: list[int]) -> None:
    """Append the received file descriptors to a list."""
    connection, _ = await _when_ready(server.accept)
    with connection:
        connection.setblocking(False)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        user = struct.unpack("3i", credentials)[1]
        if user != os.geteuid():
            raise PermissionError(f"user {user} connected to the socket of the hand-over")
        while True:
            data, received, _, _ = await _when_ready(
                lambda: socket.recv_fds(connection, 1, socket_sender.DESCRIPTORS_PER_MESSAGE)
            )
            descriptors += received
            if not data:
                return


def _check_continued(paths: NginxPaths, master: WatchedProcess) -> None:
    """Raise BlockingIOError if a live master does not have its PID file again."""
    if not paths.pid.exists() and not master.exited.is_set():
        raise BlockingIOError


async def _when_ready(call: Callable[[], T]) -> T:
    """Return the result of a call once it does not raise BlockingIOError."""
    while True:
        try:
            return call()
        except BlockingIOError:
            await asyncio.sleep(_POLL_SECONDS)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
