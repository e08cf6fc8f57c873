"""Supervisor of one process: adopts or starts it, restarts it with back-off, and stops it.

A subclass says how its program starts, and what must happen after an exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from gatehouse.runtime.watched_process import WatchedProcess
from kube_base.runtime.backoff import Backoff, BackoffPolicy
from kube_base.runtime.time_limits import scaled

TERMINATION_SECONDS = scaled(2.0)
"""Time in seconds for a process to exit whose drain timeout is exceeded. It is killed then."""


class SupervisedProcess(ABC):
    """Owner of one process that runs until it is stopped."""

    def __init__(self, name: str, restarts: BackoffPolicy, log: FilteringBoundLogger) -> None:
        """`name`: subject of log events. `restarts`: pauses before restarts."""
        self.process: WatchedProcess | None = None
        self.restarts = 0
        """Number of times a process died and was replaced."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after a process started or died."""
        self.ending = asyncio.Event()
        """Set if an exit is intended. A dead process then is not replaced."""
        self.pause = 0.0
        """Pause in seconds before the next start."""
        self._backoff = Backoff(restarts)
        self._name, self._log = name, log
        self._start_now = asyncio.Event()

    @property
    def running(self) -> bool:
        """Return whether the process is alive."""
        return self.process is not None

    @property
    def needed(self) -> bool:
        """True if an exit now is a death, and not the intended end of an idle process."""
        return True

    @abstractmethod
    def start(self) -> WatchedProcess:
        """Start the process. Raises OSError."""

    async def prepare_start(self) -> None:
        """Prepare a start, after the pause of the back-off. Does nothing by default."""
        return

    async def watch(self, process: WatchedProcess) -> None:
        """Return after the process has exited, or another one has replaced it."""
        await process.exited.wait()

    async def after_exit(self, process: WatchedProcess) -> None:
        """Report the death of a process. Another one starts after the pause of the back-off."""
        pid, status, pause = process.pid, process.status, self.pause
        self._log.warning(f"{self._name} died", pid=pid, status=status, restart_in=pause)
        self.on_change()

    def adopt_process(self, process: WatchedProcess) -> None:
        """Take over a process that an earlier supervisor started."""
        self.process = process
        self._log.info(f"{self._name} adopted", pid=process.pid)

    def start_now(self) -> None:
        """End the pause before the next start."""
        self._start_now.set()

    async def run(self) -> None:
        """Keep the process running until cancelled or ending. Cancelling does not stop it."""
        while not self.ending.is_set():
            started_at = time.monotonic()
            if self.process is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.pause):
                        await self._start_now.wait()
                if self.ending.is_set():
                    return
                self._start_now.clear()
                await self.prepare_start()
                started_at = time.monotonic()
                if self.process is None:
                    self._try_start()
            process = self.process
            if process is not None:
                await self.watch(process)
                if self.ending.is_set():
                    return
            if process is not self.process:
                # Another one has replaced it.
                continue
            self.pause = self._backoff.ended(time.monotonic() - started_at)
            if process is not None:
                self.process = None
                self.restarts += self.needed
                await self.after_exit(process)

    def start_process(self) -> WatchedProcess:
        """Start the process at once, in place of a former one. Raises OSError."""
        self.process = process = self.start()
        self._log.info(f"{self._name} started", pid=process.pid)
        self.on_change()
        return process

    def _try_start(self) -> None:
        try:
            self.start_process()
        except OSError as error:
            self._log.warning(f"{self._name} not started", error=str(error))

    async def drain(self, number: signal.Signals, seconds: float) -> None:
        """Stop the process with a signal that lets connections finish, for at most `seconds`.

        Call after :meth:`run` has ended.
        """
        process = self.process
        if process is None:
            return
        children = process.children()
        if not await process.end(number, seconds, children):
            self._log.warning("drain timeout exceeded", pid=process.pid)
            await process.end(signal.SIGTERM, TERMINATION_SECONDS, children)
        await process.kill()
