"""Sidecar processes beside a proxy: keeps them running while the configuration needs them.

A sidecar (:mod:`gatehouse.sidecars`) listens on sockets that the proxy's configuration names. It is
configured before the proxy, so that no worker ever meets a socket without a listener. Its
configuration is a list of directories: revisions of NGINX's files, or directories that the Envoy
agent writes from resources.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import structlog

from gatehouse.agent import secure_files, timeouts
from gatehouse.agent.error_log import ErrorLog, message
from gatehouse.runtime import watched_process
from gatehouse.runtime.backoff import Backoff
from gatehouse.runtime.prometheus import Sample
from gatehouse.runtime.watched_process import WatchedProcess
from gatehouse.sidecars.authenticator import config as authenticator
from gatehouse.sidecars.base import control
from gatehouse.sidecars.reviewer import config as reviewer
from gatehouse.sidecars.tls_connector import config as tls_connector

log = structlog.get_logger("gatehouse.agent")

CONTROL_TIMEOUT_SECONDS = 10.0
"""Timeout in seconds of one configuration, including process start and reading certificates, which
take 0.2 s together.
"""

STOP_TIMEOUT_SECONDS = 2.0
"""Time in seconds for a sidecar to exit. The proxy has exited by then, and with it every
connection.
"""


class SidecarSpec(msgspec.Struct, frozen=True):
    """One kind of sidecar."""

    name: str
    module: str
    """Module to run. Its arguments are the socket directory and the linger time in seconds."""
    sockets: str
    """Socket directory, relative to the run directory, which is the working directory of proxies.
    So configurations can name its sockets.
    """
    file: str
    """Name of the config file. A configuration that has it needs this sidecar."""


CONNECTOR = SidecarSpec(
    "connector", "gatehouse.sidecars.tls_connector", tls_connector.SOCKETS, tls_connector.FILE
)
AUTHENTICATOR = SidecarSpec(
    "authenticator", "gatehouse.sidecars.authenticator", authenticator.SOCKETS, authenticator.FILE
)
REVIEWER = SidecarSpec("reviewer", "gatehouse.sidecars.reviewer", reviewer.SOCKETS, reviewer.FILE)

NGINX_SIDECARS = (CONNECTOR, AUTHENTICATOR)
ENVOY_SIDECARS = (AUTHENTICATOR, REVIEWER)


class SidecarError(Exception):
    """A sidecar cannot serve a configuration. The message names the sidecar and the reason."""


class ConfigRejectedError(SidecarError):
    """A working sidecar rejected its configuration."""


class SidecarProcess:
    """Owner of one sidecar process with its files in directory `run`. Raises OSError.

    It is not a :class:`~gatehouse.runtime.supervised_process.SupervisedProcess`: it starts on
    demand, a start includes a request with the configuration, and a new process may start while the
    old one exits.
    """

    def __init__(self, spec: SidecarSpec, run: Path, linger: float) -> None:
        """`linger`: seconds for which a socket stays open after it is no longer configured."""
        self.name = spec.name
        self._linger = linger
        self.restarts = 0
        """Number of times the process died and was replaced, for metrics."""
        self._spec = spec
        self._directory = run / spec.sockets
        self._output = run / f"{spec.name}.log"
        self._run = run
        self.log = ErrorLog(self._output)
        # Every client of these sockets is trusted as the proxy.
        secure_files.make_private_dir(self._directory)
        self._process: WatchedProcess | None = None
        self._answered = False
        """True if the process answered a request. If it then stops answering, it is exiting."""
        self._configurations: tuple[Path, ...] = ()
        self._lock = asyncio.Lock()
        self._process_set = asyncio.Event()

    @property
    def running(self) -> bool:
        """Return whether the process is alive."""
        return self._process is not None and not self._process.exited.is_set()

    @property
    def needed(self) -> bool:
        """Return whether a configuration needs the sidecar."""
        return bool(self._configurations)

    def adopt(self) -> None:
        """Take over a process that an earlier agent started, if one runs."""
        pid = control.pid(self._directory)
        if pid is not None:
            log.info(f"{self.name} adopted", pid=pid)
            self._watch(WatchedProcess(pid))

    async def serve(self, *configurations: Path) -> None:
        """Serve everything in the directories `configurations`. Other sockets close after `linger`.

        Raises SidecarError, or ConfigRejectedError if the sidecar rejects the configurations. The
        previous configuration then stays in effect.
        """
        self._configurations = tuple(
            path for path in configurations if (path / self._spec.file).exists()
        )
        async with self._lock:
            await self._configure()

    async def run(self) -> None:
        """Replace the process if it dies while it is needed, until cancelled."""
        # Requests fail until another process listens, so one that ran for long is replaced at once.
        backoff = Backoff(timeouts.RESTARTS)
        while True:
            await self._process_set.wait()
            process, started_at = self._process, time.monotonic()
            assert process is not None
            await process.exited.wait()
            async with self._lock:
                if self._process is process:
                    self._process = None
                    self._process_set.clear()
            pause = 0.0
            if timeouts.RESTARTS.is_steady(time.monotonic() - started_at):
                backoff.succeeded()
            else:
                pause = backoff.failed()
            if self._configurations:
                log.warning(f"{self.name} died", pid=process.pid)
                self.restarts += 1
                await self._replace(pause, backoff)
            else:
                log.info(f"{self.name} exited", pid=process.pid)

    async def _replace(self, pause: float, backoff: Backoff) -> None:
        while self._configurations and self._process is None:
            await asyncio.sleep(pause)
            try:
                async with self._lock:
                    await self._configure()
            except SidecarError as error:
                log.warning(f"{self.name} not restarted", error=str(error))
                pause = backoff.failed()

    async def quit(self) -> None:
        """Stop the process. Call after the proxy has exited and after :meth:`run` has ended."""
        self._configurations = ()
        if self._process is None:
            return
        if not await self._process.end(signal.SIGTERM, STOP_TIMEOUT_SECONDS):
            log.warning(f"{self.name} killed at stop timeout", pid=self._process.pid)
        await self._process.kill()

    async def _configure(self) -> None:
        """Send the configurations. Start a process if none listens and there are configurations."""
        started: WatchedProcess | None = None
        position = self.log.position()
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_SECONDS):
                while True:
                    try:
                        error = await control.send_request(self._directory, self._configurations)
                    except (OSError, EOFError):
                        if not self._configurations:
                            return
                    else:
                        break
                    if started is not None and started.exited.is_set():
                        raise self._error(f"exited at start: {self._last_message(position)}")
                    if self._process is None or self._process.exited.is_set() or self._answered:
                        started = self._start()
                    await asyncio.sleep(0.01)
        except TimeoutError as timeout:
            if self._process is not None:
                self._process.signal(signal.SIGKILL)
            raise self._error(f"no response within {CONTROL_TIMEOUT_SECONDS:g} s") from timeout
        self._answered = True
        if error:
            raise ConfigRejectedError(f"{self.name}: {error}")

    def _error(self, reason: str) -> SidecarError:
        return SidecarError(f"{self.name}: {reason}")

    def _last_message(self, position: int) -> str:
        lines, _ = self.log.lines(position)
        return message(lines[-1]) if lines else "no message in its log"

    def _start(self) -> WatchedProcess:
        # -P: do not import modules from the working directory.
        program = [sys.executable, "-P", "-m", self._spec.module]
        command = [*program, str(self._directory), str(self._linger)]
        try:
            process = watched_process.start(command, output=self._output, cwd=self._run)
        except OSError as error:
            raise self._error(f"cannot be started: {error}") from error
        log.info(f"{self.name} started", pid=process.pid)
        return self._watch(process)

    def _watch(self, process: WatchedProcess) -> WatchedProcess:
        self._process, self._answered = process, False
        self._process_set.set()
        return process


def create(specs: Iterable[SidecarSpec], run: Path, drain: float) -> tuple[SidecarProcess, ...]:
    """Return one process owner for each spec. Raises OSError.

    `drain`: drain timeout of the proxy's connections in seconds.
    """
    return tuple(SidecarProcess(spec, run, timeouts.sidecar_drain_seconds(drain)) for spec in specs)


def start_tasks(group: asyncio.TaskGroup, processes: Sequence[SidecarProcess]) -> None:
    """Start tasks in `group` that replace dead sidecars and forward their logs."""
    for process in processes:
        group.create_task(process.run())
        group.create_task(process.log.forward(process.name))


def metrics(processes: Iterable[SidecarProcess]) -> Iterator[Sample]:
    """Yield the current metrics of the sidecars."""
    name = "gatehouse_agent_sidecar"
    for process in processes:
        labels = {"sidecar": process.name}
        text = "1 if the sidecar process runs, else 0."
        yield Sample(f"{name}_up", text, process.running, labels=labels)
        text = "1 if the configuration needs the sidecar, else 0."
        yield Sample(f"{name}_desired", text, process.needed, labels=labels)
        text = "Sidecar processes that died while they were needed."
        yield Sample(f"{name}_restarts", text, process.restarts, "counter", labels)
