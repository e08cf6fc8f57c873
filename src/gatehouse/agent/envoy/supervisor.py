"""Keeps one Envoy running: adopts, starts, restarts with growing pauses, drains, ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.agent.envoy.binary import EnvoyBinary
from gatehouse.agent.envoy.paths import Places
from gatehouse.agent.error_log import ErrorLog
from gatehouse.agent.timeouts import (
    RESTART_BACKOFF_INITIAL_SECONDS,
    RESTART_BACKOFF_MAX_SECONDS,
    RESTART_BACKOFF_RESET_SECONDS,
)
from gatehouse.runtime import procfs
from gatehouse.runtime.watched_process import WatchedProcess, wait_until_gone

log = structlog.get_logger("gatehouse.agent")

SHUTDOWN_DELAY_SECONDS = 3.0
"""How long new connections are taken after the end was announced, by clients that have not heard of
it; less if there are none."""

IDLE_SECONDS = 1.0
"""After so long without a request there is none on its way."""

LISTENER_DRAIN_SECONDS = 600
"""How long connections to a listener that was changed or removed may go on."""

_LOG_FORMAT = "%Y/%m/%d %H:%M:%S [%l] %v"


class Supervisor:
    """Owns the Envoy. ``workers``: the number of its threads, or ``auto``."""

    def __init__(self, binary: EnvoyBinary, places: Places, workers: str) -> None:
        self.process: WatchedProcess | None = None
        self.restarts = 0
        """How often an Envoy died and was replaced, for metrics."""
        self.error_log = ErrorLog(places.log)
        self.on_change: Callable[[], None] = lambda: None
        """Called after an Envoy appeared or died."""
        self._binary = binary
        self._places = places
        self._workers = workers

    @property
    def alive(self) -> bool:
        """Whether there is a live Envoy."""
        return self.process is not None

    def adopt(self) -> bool:
        """Take over an Envoy that an earlier agent started, if one runs."""
        for pid in find_running(self._places.bootstrap):
            with contextlib.suppress(ProcessLookupError):
                if self.process is None:
                    self.process = WatchedProcess(pid)
                    log.info("envoy adopted", pid=pid)
                else:
                    # Two would share the ports, one of them without a relay.
                    os.kill(pid, signal.SIGKILL)
        return self.alive

    async def run(self) -> None:
        """Keep an Envoy alive until cancelled, which does not end it."""
        pause = 0.0
        while True:
            started = time.monotonic()
            if self.process is None:
                await asyncio.sleep(pause)
                started = time.monotonic()
                self._start()
            if self.process is not None:
                await self.process.exited.wait()
                log.warning("envoy died", pid=self.process.pid)
                self.process = None
                self.restarts += 1
                self.on_change()
            steady = time.monotonic() - started > RESTART_BACKOFF_RESET_SECONDS
            pause = (
                RESTART_BACKOFF_INITIAL_SECONDS
                if steady
                else min(
                    max(2 * pause, RESTART_BACKOFF_INITIAL_SECONDS), RESTART_BACKOFF_MAX_SECONDS
                )
            )

    def _start(self) -> None:
        concurrency = [] if self._workers == "auto" else ["--concurrency", self._workers]
        try:
            with self._places.log.open("ab") as output:
                popen = subprocess.Popen(
                    [
                        str(self._binary.path),
                        *("-c", str(self._places.bootstrap)),
                        # Several may run on one machine, and none hands over to another.
                        "--disable-hot-restart",
                        *("--log-level", "warning", "--log-format", _LOG_FORMAT),
                        *("--drain-time-s", str(LISTENER_DRAIN_SECONDS)),
                        *("--drain-strategy", "immediate"),
                        *concurrency,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd=self._places.run,
                    env={},
                )
        except OSError as error:
            log.warning("envoy not started", reason=str(error))
            return
        self.process = WatchedProcess(popen.pid, popen)
        log.info("envoy started", pid=popen.pid)
        self.on_change()

    async def stop(self, admin: AdminClient, welcome: float, drain: float) -> None:
        """Let Envoy finish what it serves, ``drain`` seconds at most; then end it.

        Call after :meth:`run`. ``welcome``: seconds for which new connections are taken however few
        there are.
        """
        process = self.process
        if process is None:
            return
        draining = asyncio.create_task(_drain(admin, welcome, drain))
        ended = asyncio.create_task(process.exited.wait())
        await asyncio.wait(
            {draining, ended}, timeout=welcome + drain, return_when=asyncio.FIRST_COMPLETED
        )
        if not draining.done() and not ended.done():
            log.warning("drain cut short", pid=process.pid)
        for task in (draining, ended):
            task.cancel()
        await asyncio.gather(draining, ended, return_exceptions=True)
        process.signal(signal.SIGTERM)
        if not await wait_until_gone(frozenset({process.pid}), 5.0):
            process.signal(signal.SIGKILL)
        await process.exited.wait()


async def _drain(admin: AdminClient, welcome: float, seconds: float) -> None:
    """Send clients away without breaking anything off; returns when nothing is on its way."""
    try:
        await admin.fail_health_checks()
        await admin.drain_connections()
        await asyncio.gather(_idle(admin, SHUTDOWN_DELAY_SECONDS), asyncio.sleep(welcome))
        await admin.close_listeners()
        await _idle(admin, seconds)
    except OSError as error:
        log.warning("envoy cannot be drained", reason=str(error))


async def _idle(admin: AdminClient, seconds: float) -> None:
    """Wait until nothing has been on its way for a while, at most ``seconds``."""
    now = asyncio.get_running_loop().time
    end, busy = now() + seconds, now()
    while now() < end and now() - busy < IDLE_SECONDS:
        if await admin.active_count():
            busy = now()
        await asyncio.sleep(0.1)


def find_running(bootstrap: Path) -> list[int]:
    """Give the pids of Envoys that were started with this file, in their order."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            named = procfs.executable(pid).startswith("envoy")
            if named and str(bootstrap) in procfs.command_line(pid).split():
                found.append(pid)
    return sorted(found)
