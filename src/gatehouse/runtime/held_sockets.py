"""Duplicates of the listening sockets of another process, which keep the ports open if it dies.

Connections then wait in the queues of the sockets until a new process inherits them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable

from structlog.typing import FilteringBoundLogger

from gatehouse.runtime import procfs
from gatehouse.runtime.watched_process import WatchedProcess

Receive = Callable[[WatchedProcess], Awaitable[Iterable[int]]]
"""Returns duplicates of all listening sockets of a process. Raises OSError if it cannot."""


class HeldSockets:
    """Listening sockets of one process. Failures are logged, and then no socket is held."""

    def __init__(self, log: FilteringBoundLogger, receive: Receive) -> None:
        self._log, self._receive = log, receive
        self._held: dict[int, int] = {}
        """Own file descriptor by inode."""
        self._others: set[int] = set()
        """Inodes of sockets of the process that do not listen."""
        self._failed = 0
        """Pid of a process whose sockets could not be received. It is not asked again."""
        self._error = ""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors of the held sockets. Empty if none is held."""
        return tuple(self._held.values())

    async def hold(self, process: WatchedProcess) -> None:
        """Hold exactly the listening sockets of a process, which passes them to its children.

        It is disturbed only if it has sockets that are new here. Call again after the end of a call
        only.
        """
        if process.pid == self._failed:
            return
        try:
            sockets = procfs.sockets(process.pid)
            self._close(self._held.keys() - sockets.keys())
            self._others &= sockets.keys()
            new = sockets.keys() - self._held.keys() - self._others
            if any(procfs.is_inheritable(process.pid, sockets[inode]) for inode in new):
                self._replace(await self._receive(process))
            self._others |= new - self._held.keys()
        except OSError as error:
            self.release()
            self._failed = process.pid
            if str(error) != self._error:
                self._error = str(error)
                self._log.warning("listening sockets not held", error=str(error))
        else:
            self._error = ""

    def release(self) -> None:
        """Close all held sockets."""
        self._close(set(self._held))

    def _replace(self, descriptors: Iterable[int]) -> None:
        self.release()
        self._held = {os.fstat(descriptor).st_ino: descriptor for descriptor in descriptors}

    def _close(self, inodes: set[int]) -> None:
        for inode in inodes:
            with contextlib.suppress(OSError):
                os.close(self._held.pop(inode))
