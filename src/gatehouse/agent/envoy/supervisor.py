"""Supervisor of one Envoy: its command line, and its drain over the admin interface."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import structlog

from gatehouse.agent import timeouts
from gatehouse.agent.access_log import LogForwarder
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.agent.envoy.binary import EnvoyBinary
from gatehouse.agent.envoy.paths import EnvoyPaths
from gatehouse.agent.error_log import ErrorLog
from gatehouse.runtime import procfs, watched_process
from gatehouse.runtime.supervised_process import SupervisedProcess
from gatehouse.runtime.watched_process import WatchedProcess

log = structlog.get_logger("gatehouse.agent")

SHUTDOWN_DELAY_SECONDS = 3.0
"""Maximum time in seconds for accepting new connections after the drain was announced.

Clients may not know of the drain yet. Shorter if Envoy becomes idle.
"""

_IDLE_SECONDS = 1.0
"""Time in seconds without an active request after which Envoy counts as idle."""

ACCESS_LOG_FLUSH_MILLISECONDS = 1000
"""Maximum age in milliseconds of entries that Envoy has not written yet."""

_LOG_FORMAT = "%Y/%m/%d %H:%M:%S [%l] %v"


class EnvoySupervisor(SupervisedProcess):
    """Owner of the Envoy process."""

    def __init__(self, binary: EnvoyBinary, paths: EnvoyPaths, workers: str, drain: float) -> None:
        """`workers`: number of Envoy's threads, or `auto`.

        `drain`: drain timeout in seconds at the stop of the agent.
        """
        super().__init__("envoy", timeouts.RESTARTS, log)
        self.error_log = ErrorLog(paths.log)
        self.access_log = LogForwarder(paths.access_log)
        self._binary = binary
        self._paths = paths
        self._workers = workers
        self._drain_seconds = timeouts.shutdown_seconds(drain)

    def adopt(self) -> None:
        """Adopt a running Envoy of an earlier agent if there is one."""
        for pid in find_running(self._paths.bootstrap):
            with contextlib.suppress(ProcessLookupError):
                if self.process is None:
                    self.adopt_process(WatchedProcess(pid))
                else:
                    # Two Envoys would share the ports, one of them without a relay.
                    os.kill(pid, signal.SIGKILL)

    def start(self) -> WatchedProcess:
        """Start an Envoy. Raises OSError."""
        concurrency = [] if self._workers == "auto" else ["--concurrency", self._workers]
        command = [
            str(self._binary.path),
            *("-c", str(self._paths.bootstrap)),
            # Several Envoys may run on one machine, and none hands over to another.
            "--disable-hot-restart",
            *("--log-level", "warning", "--log-format", _LOG_FORMAT),
            *("--drain-time-s", str(self._drain_seconds)),
            *("--drain-strategy", "immediate"),
            *("--file-flush-interval-msec", str(ACCESS_LOG_FLUSH_MILLISECONDS)),
            *concurrency,
        ]
        return watched_process.start_watched(
            command,
            output=self._paths.log,
            stdout=self._paths.access_log,
            cwd=self._paths.run,
            env={},
        )

    def kill(self, pid: int) -> None:
        """Kill Envoy if it has this pid."""
        if self.process is not None and pid == self.process.pid:
            self.process.signal(signal.SIGKILL)

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
        await process.end(signal.SIGTERM, 5.0)
        await process.kill()


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
    while now() < end and now() - busy < _IDLE_SECONDS:
        if await admin.active_count():
            busy = now()
        await asyncio.sleep(0.1)


def find_running(bootstrap: Path) -> list[int]:
    """Return the pids of Envoys that were started with this bootstrap file, in ascending order."""
    return [pid for pid, words in procfs.running(("envoy",)) if str(bootstrap) in words]
