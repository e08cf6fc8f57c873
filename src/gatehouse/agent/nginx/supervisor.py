"""Keeps one NGINX running: adopts, starts, restarts with growing pauses, stops."""

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
from gatehouse.agent.nginx.paths import Places
from gatehouse.agent.timeouts import (
    RESTART_BACKOFF_INITIAL_SECONDS,
    RESTART_BACKOFF_MAX_SECONDS,
    RESTART_BACKOFF_RESET_SECONDS,
)
from gatehouse.runtime.watched_process import wait_until_gone

log = structlog.get_logger("gatehouse.agent")


class Supervisor:
    """Owns the master. ``on_change`` is called after it appeared or died."""

    def __init__(
        self, binary: NginxBinary, places: Places, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.master: masters.Master | None = None
        self.restarts = 0
        """How often a master died and was replaced, for metrics."""
        self.on_change = on_change
        self.before_start: Callable[[], None] = lambda: None
        """Called before a master starts; raises OSError if none can."""
        self.error_log = ErrorLog(places.error_log)
        self._binary = binary
        self._places = places
        self._wanted = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether there is a live master."""
        return self.master is not None

    async def adopt(self) -> bool:
        """Take over a master that is running already; else clear away what a dead one left."""
        self.master = masters.adopt(self._places)
        if self.master is not None:
            log.info("nginx adopted", pid=self.master.pid)
            return True
        leader = masters.read_pid_file(self._places)
        if leader is not None:
            await self._clear(leader)
        self._places.remove_sockets()
        return False

    def reload(self) -> frozenset[int]:
        """Have the current generation loaded, by SIGHUP or by a start at once.

        Returns the workers that are to be replaced.
        """
        if self.master is None:
            self._wanted.set()
            return frozenset()
        workers = self.master.workers()
        self.master.signal(signal.SIGHUP)
        return workers

    async def run(self) -> None:
        """Keep a master alive until cancelled, which does not end the master."""
        pause, started = 0.0, 0.0
        while True:
            if self.master is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wanted.wait(), pause)
                self._wanted.clear()
                started = time.monotonic()
                self._start()
            if self.master is not None:
                await self.master.exited.wait()
                await self._bury(self.master)
            steady = time.monotonic() - started > RESTART_BACKOFF_RESET_SECONDS
            pause = (
                RESTART_BACKOFF_INITIAL_SECONDS
                if steady
                else min(
                    max(2 * pause, RESTART_BACKOFF_INITIAL_SECONDS), RESTART_BACKOFF_MAX_SECONDS
                )
            )

    def _start(self) -> None:
        try:
            self.before_start()
            self.master = masters.start(self._binary, self._places)
        except OSError as error:
            log.warning("nginx not started", reason=str(error))
            return
        log.info("nginx started", pid=self.master.pid)
        self.on_change()

    async def _bury(self, dead: masters.Master) -> None:
        self.master = None
        self.restarts += 1
        log.warning("nginx died", pid=dead.pid)
        await self._clear(dead.pid)
        self._places.remove_sockets()
        self.on_change()

    @staticmethod
    async def _clear(leader: int) -> None:
        orphans = masters.kill_orphaned_workers(leader)
        if orphans and not await wait_until_gone(orphans, 5.0):
            log.error("orphaned workers remain", pids=sorted(orphans))

    async def quit(self, drain: float) -> None:
        """Let NGINX finish what it serves, ``drain`` seconds at most; then end it.

        Call after :meth:`run`.
        """
        master = self.master
        if master is None:
            return
        pids = frozenset({master.pid}) | master.workers()
        master.signal(signal.SIGQUIT)
        if not await wait_until_gone(pids, drain):
            log.warning("drain cut short", pid=master.pid)
            master.signal(signal.SIGTERM)
            if not await wait_until_gone(pids, 2.0):
                master.signal(signal.SIGKILL)
        await master.exited.wait()
        await self._clear(master.pid)
