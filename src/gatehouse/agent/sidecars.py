"""Keeps companions of a proxy running while a configuration needs them, and told what it needs.

A companion (:mod:`gatehouse.companion`) listens on sockets that the proxy's configuration names. It
is told before the proxy is, so that no worker ever meets a socket that nobody listens on. What it
is told are directories: generations of NGINX's files, or what an Envoy's agent made of resources.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import structlog

from gatehouse.agent import secure_files, timeouts
from gatehouse.agent.error_log import ErrorLog, message
from gatehouse.agent.timeouts import (
    RESTART_BACKOFF_INITIAL_SECONDS,
    RESTART_BACKOFF_MAX_SECONDS,
    RESTART_BACKOFF_RESET_SECONDS,
)
from gatehouse.runtime.prometheus import Figure
from gatehouse.runtime.watched_process import WatchedProcess, wait_until_gone
from gatehouse.sidecars.authenticator import config as authenticating
from gatehouse.sidecars.base import control
from gatehouse.sidecars.reviewer import config as reviewing
from gatehouse.sidecars.tls_connector import config as connecting

log = structlog.get_logger("gatehouse.agent")

CONTROL_TIMEOUT_SECONDS = 10.0
"""For a start and for reading authorities and certificates; both together take 0.2 s."""

STOP_TIMEOUT_SECONDS = 2.0
"""The proxy has ended by then, and with it every connection that could still be finished."""


class SidecarSpec(msgspec.Struct, frozen=True):
    """One of the programs that companions are."""

    name: str
    module: str
    """What is run; it is given the directory of its sockets, and how long it is to linger."""
    sockets: str
    """The directory of its sockets, by a name relative to the run directory, in which proxies run;
    so configurations can name them."""
    file: str
    """The description that configurations have which need it."""


CONNECTOR = SidecarSpec(
    "connector", "gatehouse.sidecars.tls_connector", connecting.SOCKETS, connecting.FILE
)
AUTHENTICATOR = SidecarSpec(
    "authenticator", "gatehouse.sidecars.authenticator", authenticating.SOCKETS, authenticating.FILE
)
REVIEWER = SidecarSpec("reviewer", "gatehouse.sidecars.reviewer", reviewing.SOCKETS, reviewing.FILE)

NGINX_SIDECARS = (CONNECTOR, AUTHENTICATOR)
ENVOY_SIDECARS = (AUTHENTICATOR, REVIEWER)


class SidecarError(Exception):
    """A companion does not do what a configuration needs; the message says which, and why."""


class ConfigRejectedError(SidecarError):
    """A companion that is well says why it cannot do what it was told."""


class SidecarProcess:
    """Owns one process, whose files are in the directory ``run``. Raises OSError."""

    def __init__(self, kind: SidecarSpec, run: Path, linger: float) -> None:
        """``linger``: seconds for which sockets stay open that no configuration names any more."""
        self.name = kind.name
        self._linger = linger
        self.restarts = 0
        """How often one died and was replaced, for metrics."""
        self._kind = kind
        self._directory = run / kind.sockets
        self._output = run / f"{kind.name}.log"
        self._run = run
        self.log = ErrorLog(self._output)
        # Whoever connects there is taken for the proxy.
        secure_files.make_private_dir(self._directory)
        self._process: WatchedProcess | None = None
        self._answered = False
        """Whether the process ever took a request; one that did and does no more is ending."""
        self._wanted: tuple[Path, ...] = ()
        self._turn = asyncio.Lock()
        self._appeared = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether there is a live process."""
        return self._process is not None and not self._process.exited.is_set()

    @property
    def wanted(self) -> bool:
        """Whether a configuration needs one."""
        return bool(self._wanted)

    def adopt(self) -> None:
        """Take over a process that an earlier agent started, if one runs."""
        pid = control.pid(self._directory)
        if pid is not None:
            log.info(f"{self.name} adopted", pid=pid)
            self._watch(WatchedProcess(pid))

    async def serve(self, *configurations: Path) -> None:
        """Have everything of ``configurations`` served, and soon nothing else.

        Raises CompanionError, and RefusedError for what is said of them; what was served before
        still is then.
        """
        self._wanted = tuple(each for each in configurations if (each / self._kind.file).exists())
        async with self._turn:
            await self._tell()

    async def run(self) -> None:
        """Replace a process that dies while it is needed, until cancelled."""
        pause = 0.0
        while True:
            await self._appeared.wait()
            process, begun = self._process, time.monotonic()
            assert process is not None
            await process.exited.wait()
            async with self._turn:
                if self._process is process:
                    self._process = None
                    self._appeared.clear()
            steady = time.monotonic() - begun > RESTART_BACKOFF_RESET_SECONDS
            pause = (
                0.0
                if steady
                else min(
                    max(2 * pause, RESTART_BACKOFF_INITIAL_SECONDS), RESTART_BACKOFF_MAX_SECONDS
                )
            )
            if self._wanted:
                log.warning(f"{self.name} died", pid=process.pid)
                self.restarts += 1
                await self._replace(pause)
            else:
                log.info(f"{self.name} ended", pid=process.pid)

    async def _replace(self, pause: float) -> None:
        while self._wanted and self._process is None:
            await asyncio.sleep(pause)
            try:
                async with self._turn:
                    await self._tell()
            except SidecarError as error:
                log.warning(f"{self.name} not replaced", reason=str(error))
                pause = min(
                    max(2 * pause, RESTART_BACKOFF_INITIAL_SECONDS), RESTART_BACKOFF_MAX_SECONDS
                )

    async def quit(self) -> None:
        """End it. Call after the proxy ended, and after :meth:`run`."""
        self._wanted = ()
        if self._process is None:
            return
        self._process.signal(signal.SIGTERM)
        if not await wait_until_gone(frozenset({self._process.pid}), STOP_TIMEOUT_SECONDS):
            log.warning(f"{self.name} cut short", pid=self._process.pid)
            self._process.signal(signal.SIGKILL)
        await self._process.exited.wait()

    async def _tell(self) -> None:
        """Tell the process what is wanted; start one if none listens and something is."""
        started: WatchedProcess | None = None
        position = self.log.position()
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_SECONDS):
                while True:
                    try:
                        error = await control.ask(self._directory, self._wanted)
                    except (OSError, EOFError):
                        if not self._wanted:
                            return
                    else:
                        break
                    if started is not None and started.exited.is_set():
                        raise self._error(f"it ended at once: {self._last_words(position)}")
                    if self._process is None or self._process.exited.is_set() or self._answered:
                        started = self._start()
                    await asyncio.sleep(0.01)
        except TimeoutError as late:
            if self._process is not None:
                self._process.signal(signal.SIGKILL)
            raise self._error(f"it did not answer within {CONTROL_TIMEOUT_SECONDS:g} s") from late
        self._answered = True
        if error:
            raise ConfigRejectedError(f"{self.name}: {error}")

    def _error(self, why: str) -> SidecarError:
        return SidecarError(f"{self.name}: {why}")

    def _last_words(self, position: int) -> str:
        lines, _ = self.log.lines(position)
        return message(lines[-1]) if lines else "it said nothing"

    def _start(self) -> WatchedProcess:
        # -P: nothing is imported from the working directory.
        program = [sys.executable, "-P", "-m", self._kind.module]
        try:
            with self._output.open("ab") as output:
                popen = subprocess.Popen(
                    [*program, str(self._directory), str(self._linger)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd=self._run,
                )
        except OSError as error:
            raise self._error(f"it cannot be started: {error}") from error
        log.info(f"{self.name} started", pid=popen.pid)
        return self._watch(WatchedProcess(popen.pid, popen))

    def _watch(self, process: WatchedProcess) -> WatchedProcess:
        self._process, self._answered = process, False
        self._appeared.set()
        return process


def create(kinds: Iterable[SidecarSpec], run: Path, drain: float) -> tuple[SidecarProcess, ...]:
    """Give the owner of each kind's process; raises OSError.

    ``drain``: how long connections of the proxy may take to finish, in seconds.
    """
    return tuple(SidecarProcess(kind, run, timeouts.sidecar_drain_seconds(drain)) for kind in kinds)


def start_tasks(group: asyncio.TaskGroup, owners: Sequence[SidecarProcess]) -> None:
    """Replace those that die, and pass on what they say, for as long as ``group`` lives."""
    for each in owners:
        group.create_task(each.run())
        group.create_task(each.log.forward(each.name))


CONNECTED_HELP = "1 if the agent is connected to the control plane, else 0."
"""Help of a metric of all agents."""


def metrics(owners: Iterable[SidecarProcess]) -> Iterator[Figure]:
    """What is measured of companions at this moment."""
    name = "gatehouse_agent_sidecar"
    for each in owners:
        labels = {"sidecar": each.name}
        about = "1 if the sidecar is running, else 0."
        yield Figure(f"{name}_up", about, each.running, labels=labels)
        about = "1 if the configuration requires the sidecar, else 0."
        yield Figure(f"{name}_desired", about, each.wanted, labels=labels)
        about = "Restarts of the sidecar after a crash."
        yield Figure(f"{name}_restarts", about, each.restarts, "counter", labels)
