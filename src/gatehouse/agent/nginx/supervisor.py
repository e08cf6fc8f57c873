"""Supervisor of one NGINX: adopts, starts, restarts with back-off, and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable

import structlog

from gatehouse.agent.error_log import ErrorLog
from gatehouse.agent.nginx import master as masters
from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.paths import Paths
from gatehouse.agent.timeouts import RESTARTS
from gatehouse.runtime.backoff import Backoff
from gatehouse.runtime.watched_process import wait_until_gone

log = structlog.get_logger("gatehouse.agent")


class NginxSupervisor:
    """Owner of the master. `on_change` is called after it started or died."""

    def __init__(
        self, binary: NginxBinary, paths: Paths, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.master: masters.Master | None = None
        self.restarts = 0
        """Number of times a master died and was replaced, for metrics."""
        self.on_change = on_change
        self.before_start: Callable[[], None] = lambda: None
        """Called before a master starts. Raises OSError if it must not start."""
        self.error_log = ErrorLog(paths.error_log)
        self._binary = binary
        self._paths = paths
        self._start_now = asyncio.Event()

    @property
    def running(self) -> bool:
        """Return whether the master is alive."""
        return self.master is not None

    async def adopt(self) -> bool:
        """Adopt a running master, or clean up after a dead one. Return whether one was adopted."""
        self.master = masters.adopt(self._paths)
        if self.master is not None:
            log.info("nginx adopted", pid=self.master.pid)
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
        if self.master is None:
            self._start_now.set()
            return frozenset()
        workers = self.master.workers()
        self.master.signal(signal.SIGHUP)
        return workers

    async def run(self) -> None:
        """Keep a master running until cancelled. Cancelling does not stop the master."""
        backoff, pause, started = Backoff(RESTARTS), 0.0, 0.0
        while True:
            if self.master is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._start_now.wait(), pause)
                self._start_now.clear()
                started = time.monotonic()
                self._start()
            if self.master is not None:
                await self.master.exited.wait()
                await self._on_exit(self.master)
            pause = backoff.ended(time.monotonic() - started)

    def _start(self) -> None:
        try:
            self.before_start()
            self.master = masters.start(self._binary, self._paths)
        except OSError as error:
            log.warning("nginx not started", error=str(error))
            return
        log.info("nginx started", pid=self.master.pid)
        self.on_change()

    async def _on_exit(self, dead: masters.Master) -> None:
        self.master = None
        self.restarts += 1
        log.warning("nginx died", pid=dead.pid)
        await self._kill_orphans(dead.pid)
        self._paths.remove_sockets()
        self.on_change()

    @staticmethod
    async def _kill_orphans(leader: int) -> None:
        orphans = masters.kill_orphaned_workers(leader)
        if orphans and not await wait_until_gone(orphans, 5.0):
            log.error("orphaned workers not killed", pids=sorted(orphans))

    async def quit(self, drain: float) -> None:
        """Let NGINX finish its connections for at most `drain` seconds, then stop it.

        Call after :meth:`run` has ended.
        """
        master = self.master
        if master is None:
            return
        pids = frozenset({master.pid}) | master.workers()
        master.signal(signal.SIGQUIT)
        if not await wait_until_gone(pids, drain):
            log.warning("drain timeout exceeded", pid=master.pid)
            master.signal(signal.SIGTERM)
            if not await wait_until_gone(pids, 2.0):
                master.signal(signal.SIGKILL)
        await master.exited.wait()
        await self._kill_orphans(master.pid)
