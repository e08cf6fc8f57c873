"""A process that was started or adopted: watched by a pidfd, signalled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import ClassVar

from gatehouse.runtime import procfs


class WatchedProcess:
    """A live process, which need not be a child of ours."""

    started: ClassVar[set[int]] = set()
    """The children among them, which are waited for here."""

    def __init__(self, pid: int, popen: subprocess.Popen[bytes] | None = None) -> None:
        """Watch ``pid``; raises ProcessLookupError if it is gone. Needs a running event loop."""
        self.pid = pid
        self.exited = asyncio.Event()
        self._popen = popen
        if popen is not None:
            self.started.add(pid)
        # Works for processes that are nobody's child of ours, and is ready as soon as they end.
        self._pidfd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._on_exit)

    def _on_exit(self) -> None:
        self.release()
        if self._popen is not None:
            self._popen.wait()
            self.started.discard(self.pid)
        self.exited.set()

    def release(self) -> None:
        """Stop watching; the process goes on."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it is gone already."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)


async def wait_until_gone(pids: frozenset[int], seconds: float) -> bool:
    """Wait until none of ``pids`` is alive, at most ``seconds``."""
    deadline = asyncio.get_running_loop().time() + seconds
    while any(procfs.is_alive(pid) for pid in pids):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
