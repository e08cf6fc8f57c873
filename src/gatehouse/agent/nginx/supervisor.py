"""Supervisor of one NGINX: its master, and the workers that outlive a killed master.

A new master inherits the listening sockets of a dead one, which the agent holds. So no connection
is refused meanwhile. The orphaned workers serve until the new master has workers, and then finish
their requests. Without held sockets a new master cannot listen while orphaned workers do.
"""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path

import structlog

from gatehouse.agent import timeouts
from gatehouse.agent.access_log import LogForwarder
from gatehouse.agent.error_log import ErrorLog
from gatehouse.agent.nginx import handover
from gatehouse.agent.nginx import master as masters
from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.endpoint_failures import EndpointFailures
from gatehouse.agent.nginx.failed_attempts import failed_attempts
from gatehouse.agent.nginx.failure_causes import FailureCauses
from gatehouse.agent.nginx.paths import NginxPaths
from gatehouse.runtime import procfs
from gatehouse.runtime.held_sockets import HeldSockets
from gatehouse.runtime.supervised_process import SupervisedProcess
from gatehouse.runtime.watched_process import WatchedProcess, wait_until_gone
from kube_base.runtime.time_limits import scaled

HOLD_SECONDS = 1.0
"""Maximum pause in seconds before a start during which sockets are held. A longer one means that
NGINX cannot run. Clients then are refused, and can turn to another instance.
"""

_POLL_SECONDS = 0.005

STOP_ACCEPTING_SECONDS = scaled(1.0)
"""Time in seconds for an orphaned worker to stop accepting connections. It is killed then."""

log = structlog.get_logger("gatehouse.agent")


class NginxSupervisor(SupervisedProcess):
    """Owner of the master. Its children are the workers."""

    def __init__(self, binary: NginxBinary, paths: NginxPaths, drain: float) -> None:
        """`drain`: time in seconds for the requests of orphaned workers to finish."""
        super().__init__("nginx", timeouts.RESTARTS, log)
        self.before_start: Callable[[], None] = lambda: None
        """Called before a master starts. Raises OSError if it must not start."""
        self.error_log = ErrorLog(paths.error_log)
        self.failures = EndpointFailures()
        self.error_log.observe = self._observe
        self.causes = FailureCauses(self.error_log.read, paths.run)
        self.access_log = LogForwarder(paths.access_log, pieces=self.causes.access_entries)
        self._binary = binary
        self._paths = paths
        self._drain = drain
        self._sender: Path | None = None
        self._sockets = HeldSockets(log, functools.partial(handover.receive_sockets, paths))
        self._handover = asyncio.Lock()
        """Held during a hand-over of sockets, and by a reload."""
        self._leaders: set[int] = set()
        """Dead masters whose workers may be alive."""
        self._retired: frozenset[int] = frozenset()
        """Workers of dead masters that may still finish requests."""
        self._retiring: set[asyncio.Task[None]] = set()

    def _observe(self, lines: list[str]) -> None:
        """Take new lines of the error log."""
        attempts = list(failed_attempts(lines))
        self.failures.count(attempts)
        self.causes.remember(attempts)

    async def adopt(self) -> bool:
        """Adopt a running master, or clean up after a dead one. Return whether one was adopted."""
        try:
            self._sender = handover.write_sender(self._paths)
        except OSError as error:
            log.warning("script of the hand-over not written", error=str(error))
        master = masters.adopt_master(self._paths)
        if master is not None:
            self.adopt_process(master)
            # Requests may have ended while no agent ran.
            self.causes.remember(failed_attempts(self.error_log.last_lines()))
            self._retire(masters.stray_workers(self._paths, master.pid))
            return True
        leader = masters.read_pid_file(self._paths)
        if leader is not None:
            self._leaders.add(leader)
        return False

    async def hold_sockets(self) -> None:
        """Hold the current listening sockets of NGINX. Call when it serves a configuration."""
        async with self._handover:
            process = self.process
            if process is not None and any(map(masters.is_worker, process.children())):
                process.detach()
                await self._sockets.hold(process)

    async def reload(self) -> frozenset[int]:
        """Load the current revision, by SIGHUP or by starting NGINX at once.

        Returns the workers to be replaced.
        """
        async with self._handover:
            if self.process is None:
                self.start_now()
                return frozenset()
            workers = self.process.children()
            self.process.signal(signal.SIGHUP)
            return workers

    def kill(self, pid: int) -> None:
        """Kill the master, or a worker, which the master replaces."""
        if self.process is not None and pid == self.process.pid:
            self.process.signal(signal.SIGKILL)
        elif self.process is not None and pid in self.process.children():
            masters.send((pid,), signal.SIGKILL)

    def start(self) -> WatchedProcess:
        """Start a master. Raises OSError."""
        self.before_start()
        process = masters.start_master(
            self._binary, self._paths, self._sender, self._sockets.descriptors
        )
        self._run(self._follow_start(process))
        return process

    async def prepare_start(self) -> None:
        """Make the addresses available for a new master, unless it inherits the sockets."""
        if self._sockets.descriptors:
            return
        orphans = self._orphans()
        masters.send(orphans, signal.SIGQUIT)
        accepting = await _wait_not_accepting(orphans)
        masters.send(accepting, signal.SIGKILL)
        if accepting and not await wait_until_gone(accepting, 5.0):
            log.error("orphaned workers not killed", pids=sorted(accepting))
        self._paths.remove_sockets()

    async def after_exit(self, process: WatchedProcess) -> None:
        """Keep the workers of a dead master. They serve until another one starts."""
        self._leaders.add(process.pid)
        if self.pause > HOLD_SECONDS:
            self._sockets.release()
        await super().after_exit(process)

    def _orphans(self) -> frozenset[int]:
        """Return the live workers of dead masters."""
        return frozenset().union(*map(masters.orphaned_workers, self._leaders))

    async def _follow_start(self, process: WatchedProcess) -> None:
        """Retire the workers of dead masters when `process` has workers, and hold its sockets."""
        while not any(map(masters.is_worker, process.children())):
            if process.exited.is_set():
                return
            await asyncio.sleep(_POLL_SECONDS)
        orphans = self._orphans()
        self._leaders.clear()
        self._retire(orphans)
        await self.hold_sockets()

    def _retire(self, workers: frozenset[int]) -> None:
        self._retired = workers.union(filter(procfs.is_alive, self._retired))
        if workers:
            log.info("orphaned workers retired", pids=sorted(workers))
            self._run(_finish(workers, timeouts.shutdown_seconds(self._drain)))

    def _run(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def quit(self, seconds: float) -> None:
        """Let NGINX finish its connections for at most `seconds`, then stop it.

        Call after :meth:`run` has ended.
        """
        for task in self._retiring:
            task.cancel()
        # Clients must be refused, not wait in a queue that no worker reads.
        self._sockets.release()
        if self.process is not None:
            self._leaders.add(self.process.pid)
            await self.drain(signal.SIGQUIT, seconds)
        orphans = self._orphans().union(filter(masters.is_nginx, self._retired))
        masters.send(orphans, signal.SIGKILL)
        await wait_until_gone(orphans, 5.0)


async def _wait_not_accepting(workers: frozenset[int]) -> frozenset[int]:
    """Wait for workers that received SIGQUIT. Return those that still accept connections."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STOP_ACCEPTING_SECONDS
    while accepting := frozenset(
        worker for worker in workers if not masters.has_stopped_accepting(worker)
    ):
        if loop.time() > deadline:
            break
        await asyncio.sleep(_POLL_SECONDS)
    return accepting


async def _finish(workers: frozenset[int], seconds: float) -> None:
    """Let workers finish their requests for at most `seconds`, then kill them."""
    masters.send(workers, signal.SIGQUIT)
    masters.send(await _wait_not_accepting(workers), signal.SIGKILL)
    if not await wait_until_gone(workers, seconds):
        masters.send(workers, signal.SIGKILL)
