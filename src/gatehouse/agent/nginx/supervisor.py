"""Supervisor of one NGINX: its master, and the workers that outlive a killed master."""

from __future__ import annotations

import signal
from collections.abc import Callable

import structlog

from gatehouse.agent import timeouts
from gatehouse.agent.error_log import ErrorLog
from gatehouse.agent.nginx import master as masters
from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.paths import Paths
from gatehouse.runtime.supervised_process import SupervisedProcess
from gatehouse.runtime.watched_process import WatchedProcess, wait_until_gone

log = structlog.get_logger("gatehouse.agent")


class NginxSupervisor(SupervisedProcess):
    """Owner of the master. Its children are the workers."""

    def __init__(self, binary: NginxBinary, paths: Paths) -> None:
        super().__init__("nginx", timeouts.RESTARTS, log)
        self.before_start: Callable[[], None] = lambda: None
        """Called before a master starts. Raises OSError if it must not start."""
        self.error_log = ErrorLog(paths.error_log)
        self._binary = binary
        self._paths = paths

    async def adopt(self) -> bool:
        """Adopt a running master, or clean up after a dead one. Return whether one was adopted."""
        master = masters.adopt(self._paths)
        if master is not None:
            self.adopt_process(master)
            return True
        leader = masters.read_pid_file(self._paths)
        if leader is not None:
            await self._kill_orphans(leader)
        self._paths.remove_sockets()
        return False

    def reload(self) -> frozenset[int]:
        """Load the current revision, by SIGHUP or by starting NGINX at once.

        Returns the workers to be replaced.
        """
        if self.process is None:
            self.start_now()
            return frozenset()
        workers = self.process.children()
        self.process.signal(signal.SIGHUP)
        return workers

    def start(self) -> WatchedProcess:
        """Start a master. Raises OSError."""
        self.before_start()
        return masters.start(self._binary, self._paths)

    async def after_exit(self, process: WatchedProcess) -> None:
        """Kill the workers of a dead master and remove its sockets."""
        await self._kill_orphans(process.pid)
        self._paths.remove_sockets()
        await super().after_exit(process)

    @staticmethod
    async def _kill_orphans(leader: int) -> None:
        orphans = masters.kill_orphaned_workers(leader)
        if orphans and not await wait_until_gone(orphans, 5.0):
            log.error("orphaned workers not killed", pids=sorted(orphans))

    async def quit(self, seconds: float) -> None:
        """Let NGINX finish its connections for at most `seconds`, then stop it.

        Call after :meth:`run` has ended.
        """
        if self.process is not None:
            await self.drain(signal.SIGQUIT, seconds)
            await self._kill_orphans(self.process.pid)
