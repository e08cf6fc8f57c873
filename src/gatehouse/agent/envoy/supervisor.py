"""Supervisor of one Envoy: adopts, starts, restarts with back-off, drains and stops it."""

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
from gatehouse.agent.envoy.paths import Paths
from gatehouse.agent.error_log import ErrorLog
from gatehouse.agent.timeouts import RESTARTS
from gatehouse.runtime import procfs
from gatehouse.runtime.backoff import Backoff
from gatehouse.runtime.watched_process import WatchedProcess, wait_until_gone

log = structlog.get_logger("gatehouse.agent")

SHUTDOWN_DELAY_SECONDS = 3.0
"""Maximum time in seconds for accepting new connections after the drain was announced.

Clients may not know of the drain yet. Shorter if Envoy becomes idle.
"""

IDLE_SECONDS = 1.0
"""Time in seconds without an active request after which Envoy counts as idle."""

LISTENER_DRAIN_SECONDS = 600
"""Maximum time in seconds for connections to a changed or removed listener."""

_LOG_FORMAT = "%Y/%m/%d %H:%M:%S [%l] %v"


class EnvoySupervisor:
    """Owner of the Envoy process. `workers`: number of its threads, or `auto`."""

    def __init__(self, binary: EnvoyBinary, paths: Paths, workers: str) -> None:
        self.process: WatchedProcess | None = None
        self.restarts = 0
        """Number of times an Envoy died and was replaced, for metrics."""
        self.error_log = ErrorLog(paths.log)
        self.on_change: Callable[[], None] = lambda: None
        """Called after an Envoy started or died."""
        self._binary = binary
        self._paths = paths
        self._workers = workers

    @property
    def alive(self) -> bool:
        """Return whether an Envoy is running."""
        return self.process is not None

    def adopt(self) -> bool:
        """Adopt a running Envoy of an earlier agent. Return whether there was one."""
        for pid in find_running(self._paths.bootstrap):
            with contextlib.suppress(ProcessLookupError):
                if self.process is None:
                    self.process = WatchedProcess(pid)
                    log.info("envoy adopted", pid=pid)
                else:
                    # Two Envoys would share the ports, one of them without a relay.
                    os.kill(pid, signal.SIGKILL)
        return self.alive

    async def run(self) -> None:
        """Keep an Envoy running until cancelled. Cancelling does not stop it."""
        backoff, pause = Backoff(RESTARTS), 0.0
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
            pause = backoff.ended(time.monotonic() - started)

    def _start(self) -> None:
        concurrency = [] if self._workers == "auto" else ["--concurrency", self._workers]
        try:
            with self._paths.log.open("ab") as output:
                popen = subprocess.Popen(
                    [
                        str(self._binary.path),
                        *("-c", str(self._paths.bootstrap)),
                        # Several Envoys may run on one machine, and none hands over to another.
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
                    cwd=self._paths.run,
                    env={},
                )
        except OSError as error:
            log.warning("envoy not started", error=str(error))
            return
        self.process = WatchedProcess(popen.pid, popen)
        log.info("envoy started", pid=popen.pid)
        self.on_change()

    async def stop(self, admin: AdminClient, shutdown_delay: float, drain: float) -> None:
        """Let Envoy finish its connections for at most `drain` seconds, then stop it.

        Call after :meth:`run` has ended. `shutdown_delay`: minimum time in seconds for accepting
        new connections, even if there are few.
        """
        process = self.process
        if process is None:
            return
        draining = asyncio.create_task(_drain(admin, shutdown_delay, drain))
        exited = asyncio.create_task(process.exited.wait())
        await asyncio.wait(
            {draining, exited}, timeout=shutdown_delay + drain, return_when=asyncio.FIRST_COMPLETED
        )
        if not draining.done() and not exited.done():
            log.warning("drain timeout exceeded", pid=process.pid)
        for task in (draining, exited):
            task.cancel()
        await asyncio.gather(draining, exited, return_exceptions=True)
        process.signal(signal.SIGTERM)
        if not await wait_until_gone(frozenset({process.pid}), 5.0):
            process.signal(signal.SIGKILL)
        await process.exited.wait()


async def _drain(admin: AdminClient, shutdown_delay: float, seconds: float) -> None:
    """Drain connections gracefully. Returns when nothing is active."""
    try:
        await admin.fail_health_checks()
        await admin.drain_connections()
        await asyncio.gather(
            _wait_idle(admin, SHUTDOWN_DELAY_SECONDS), asyncio.sleep(shutdown_delay)
        )
        await admin.close_listeners()
        await _wait_idle(admin, seconds)
    except OSError as error:
        log.warning("envoy drain failed", error=str(error))


async def _wait_idle(admin: AdminClient, seconds: float) -> None:
    """Wait at most `seconds` until nothing has been active for `IDLE_SECONDS`."""
    now = asyncio.get_running_loop().time
    end, busy = now() + seconds, now()
    while now() < end and now() - busy < IDLE_SECONDS:
        if await admin.active_count():
            busy = now()
        await asyncio.sleep(0.1)


def find_running(bootstrap: Path) -> list[int]:
    """Return the pids of Envoys that were started with this bootstrap file, in ascending order."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            named = procfs.executable(pid).startswith("envoy")
            if named and str(bootstrap) in procfs.command_line(pid).split():
                pids.append(pid)
    return sorted(pids)
