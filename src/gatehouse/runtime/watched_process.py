"""Child or adopted process, watched through a pidfd."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import ClassVar

from gatehouse.runtime import orphan_starter, procfs


class WatchedProcess:
    """A live process, not necessarily a child of this one."""

    started: ClassVar[set[int]] = set()
    """Pids of the watched children. `_on_exit` waits for them."""

    def __init__(
        self,
        pid: int,
        popen: subprocess.Popen[bytes] | None = None,
        starter: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """Watch `pid`. Needs a running event loop.

        `starter`: its parent, which exits at the end of its input. Raises ProcessLookupError if the
        process is gone.
        """
        self.pid = pid
        self.exited = asyncio.Event()
        self._popen, self._starter = popen, starter
        self._status: int | None = None
        if popen is not None:
            self.started.add(pid)
        # Works also for processes that are not children, and is readable once they exit.
        self._pidfd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._on_exit)

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal. None if the process is alive or not a child."""
        return self._status if self._popen is None else self._popen.returncode

    def children(self) -> frozenset[int]:
        """Return the pids of its live children."""
        return procfs.children(self.pid)

    def _on_exit(self) -> None:
        self.release()
        if self._popen is not None:
            self._popen.wait()
            self.started.discard(self.pid)
        else:
            # The kernel gives an orphan to process 1, which may be this one.
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._status = os.waitstatus_to_exitcode(status) if pid else None
        self.exited.set()

    def release(self) -> None:
        """Stop watching. The process continues."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self.detach()

    def detach(self) -> None:
        """End its starter, so that the process gets another parent."""
        if self._starter is not None:
            self._starter.communicate()
            self._starter = None

    def signal(self, number: Signals) -> None:
        """Send a signal. Does nothing if the process is gone."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def end(
        self, number: Signals, seconds: float, others: frozenset[int] = frozenset()
    ) -> bool:
        """Send a signal. Return whether the process and the pids `others` exit in `seconds`."""
        self.signal(number)
        end = self._loop.time() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        except TimeoutError:
            return False
        return await wait_until_gone(others, end - self._loop.time())

    async def kill(self) -> None:
        """Kill the process if it is alive, and wait for its exit."""
        self.signal(signal.SIGKILL)
        await self.exited.wait()


def start_watched(
    command: Sequence[str],
    *,
    output: Path | None = None,
    stdout: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> WatchedProcess:
    """Start a process in a session of its own, so that it can outlive this one.

    `output`: file to which its output is appended, by default that of this process. `stdout`: file
    for its standard output, if it is another. `cwd`, `env`: directory and environment, by default
    those of this process. `pass_fds`: file descriptors that it inherits. Raises OSError.
    """
    with (
        Path(output or os.devnull).open("ab") as file,
        Path(stdout or os.devnull).open("ab") as standard,
    ):
        target = None if output is None else file
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=standard if stdout is not None else target,
            stderr=target,
            start_new_session=True,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
        )
    return WatchedProcess(popen.pid, popen)


def start_orphan(
    executable: str,
    command: Sequence[str],
    *,
    output: Path,
    stdout: Path,
    cwd: Path,
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
) -> WatchedProcess:
    """Start a process like :func:`start_watched`, which can lose its parent by `detach`.

    `command`: its arguments, the first of which need not name the executable. `output`, `stdout`:
    files to which its errors and its standard output are appended. Raises OSError.
    """
    with output.open("ab") as file:
        starter = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                orphan_starter.__file__,
                str(stdout),
                executable,
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
        )
    assert starter.stdout is not None
    pid = int(starter.stdout.readline() or -errno.ECHILD)
    if pid < 0:
        starter.communicate()
        raise OSError(-pid, os.strerror(-pid), executable)
    return WatchedProcess(pid, starter=starter)


async def wait_until_gone(pids: frozenset[int], seconds: float) -> bool:
    """Wait at most `seconds` until no process of `pids` is alive. Return whether that happened."""
    deadline = asyncio.get_running_loop().time() + seconds
    while any(procfs.is_alive(pid) for pid in pids):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
