"""Processes of the control plane: ordered start, supervision and ordered stop."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from gatehouse.agent.liveness import LivenessPolicy, LivenessTracker, ProbeTarget
from gatehouse.runtime import heartbeat
from gatehouse.runtime.heartbeat import HeartbeatPipe
from gatehouse.runtime.supervised_process import SupervisedProcess
from gatehouse.runtime.watched_process import WatchedProcess
from gatehouse.standalone import process_records
from kube_base.runtime.backoff import BackoffPolicy
from kube_base.runtime.time_limits import scaled

log = structlog.get_logger("gatehouse.up")

_RESTARTS = BackoffPolicy(first=0.2, maximum=10.0, steady=30.0)
"""Back-off between starts of a process that keeps exiting."""

_GRACE_SECONDS = 40.0
"""Grace period of a process in seconds; the node needs 30 s for its data planes."""

LEFTOVER_GRACE_SECONDS = scaled(5.0)
"""Time in seconds to wait for the exit of killed leftovers."""

LIVENESS = LivenessPolicy(period_seconds=1.5 * heartbeat.PERIOD_SECONDS, kill_seconds=scaled(30.0))
"""Time without heartbeat after which a process is killed.

A busy process has six times as much: the first compile pass over tens of thousands of objects
leaves no time for heartbeats, nor does a start on a busy machine.
"""

_ATTEMPTS = 3
"""Number of exits of a process before all are ready after which the start fails."""


class StartError(Exception):
    """Raised if a process does not start; its own log has the reason."""


class ControlPlaneProcess(msgspec.Struct, frozen=True):
    """One process of the control plane."""

    name: str
    arguments: tuple[str, ...]
    """Arguments of the `gatehouse` command."""
    ready: Callable[[], Awaitable[None]] | None = None
    """Returns when other processes may depend on it."""


class PartProcess(SupervisedProcess):
    """Owner of the process of one part, recorded in directory ``run``."""

    def __init__(
        self, part: ControlPlaneProcess, run: Path, liveness: LivenessPolicy = LIVENESS
    ) -> None:
        """`liveness`: when a process without heartbeats is killed."""
        super().__init__("process", _RESTARTS, log.bind(part=part.name))
        self.part = part
        self._path = run / f"{part.name}.json"
        self._liveness = liveness
        self._heartbeats: HeartbeatPipe | None = None

    def start(self) -> WatchedProcess:
        """Start the process. Raises OSError."""
        # The child sets PR_SET_PDEATHSIG itself: a preexec_fn would run between fork and
        # exec of a process with threads.
        command = [sys.executable, "-m", "gatehouse", *self.part.arguments]
        self._close_heartbeats()
        self._heartbeats = heartbeats = HeartbeatPipe()
        environment = {
            **os.environ,
            "GATEHOUSE_SUPERVISED": "1",
            heartbeat.HEARTBEAT_VARIABLE: str(heartbeats.writing),
        }
        try:
            return process_records.start_recorded(
                self._path, command, env=environment, pass_fds=(heartbeats.writing,)
            )
        finally:
            heartbeats.close_writing()

    async def watch(self, process: WatchedProcess) -> None:
        """Wait for the exit of the process. Kill it if it stops responding."""
        watching = asyncio.create_task(self._kill_if_hung(process))
        try:
            await process.exited.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self._close_heartbeats()

    async def _kill_if_hung(self, process: WatchedProcess) -> None:
        heartbeats, loop = self._heartbeats, asyncio.get_running_loop()
        if heartbeats is None:
            return
        tracker = LivenessTracker(self._liveness)
        target = ProbeTarget(process.pid, self.part.name)
        while not tracker.overdue():
            await asyncio.sleep(self._liveness.period_seconds)
            tracker.observe(set() if heartbeats.has_beaten() else {target}, loop.time())
        reason = f"no heartbeat for at least {self._liveness.kill_seconds:g} s"
        self._log.error("hung process killed", pid=process.pid, reason=reason)
        # A stopped process does not handle SIGTERM. Data planes keep running.
        process.signal(signal.SIGKILL)

    def _close_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.close()
            self._heartbeats = None

    async def end(self, number: signal.Signals) -> None:
        """End the process if it runs, within the grace period."""
        process = self.process
        if process is None or process.exited.is_set():
            return
        if not await process.end(number, _GRACE_SECONDS):
            self._log.warning("process killed", after_seconds=_GRACE_SECONDS)
        await process.kill()
        self._log.info("process stopped")

    async def end_leftover(self) -> None:
        """Kill the process of a killed supervisor. Data planes keep running."""
        process = process_records.adopt_process(self._path)
        if process is not None:
            self._log.info("killing leftover process", pid=process.pid)
            # Not SIGTERM: the node would stop the data planes, too.
            await process.end(signal.SIGKILL, LEFTOVER_GRACE_SECONDS)


class ControlPlaneSupervisor:
    """Starts processes in the given order and stops them in reverse order."""

    def __init__(
        self, parts: Sequence[ControlPlaneProcess], run: Path, leaving: asyncio.Event | None = None
    ) -> None:
        """``leaving``: if it is set by the time of the end, data planes go on."""
        self._leaving = leaving or asyncio.Event()
        self._ready = False
        self._given_up = asyncio.Event()
        self._processes = [PartProcess(part, run) for part in parts]
        for process in self._processes:
            process.on_change = functools.partial(self._check, process)

    async def run(
        self,
        stop: asyncio.Event,
        on_ready: Callable[[], None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Run until ``stop`` is set. Raises StartError if a process repeatedly exits at start.

        ``check`` is called when leftover processes have ended, and may raise an exception.
        """
        await asyncio.gather(*(process.end_leftover() for process in self._processes))
        await asyncio.to_thread(check)
        tasks = []
        try:
            for process in self._processes:
                tasks.append(asyncio.create_task(process.run()))
                if process.part.ready is None:
                    continue
                outcome = await _first_done(
                    process.part.ready(), stop.wait(), self._given_up.wait()
                )
                if outcome == 1:
                    return
                if outcome == 2:
                    raise StartError(f"{process.part.name} failed to start; see its log above")
            self._ready = True
            on_ready()
            await stop.wait()
        finally:
            for process in self._processes:
                process.ending.set()
            for process in reversed(self._processes):
                await process.end(signal.SIGHUP if self._leaving.is_set() else signal.SIGTERM)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _check(self, process: PartProcess) -> None:
        """Abandon a start after too many exits of a process."""
        if process.restarts >= _ATTEMPTS and not self._ready:
            process.ending.set()
            self._given_up.set()


async def _first_done(*awaitables: Awaitable[object]) -> int:
    """Return the index of the first awaitable that is done, and cancel the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if not task.done():
            task.cancel()
    index = next(number for number, task in enumerate(tasks) if task.done())
    tasks[index].result()
    return index
