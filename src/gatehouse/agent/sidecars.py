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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import structlog

from gatehouse.agent import timeouts
from gatehouse.agent.error_log import ErrorLog, message
from gatehouse.runtime import watched_process
from gatehouse.runtime.prometheus import Sample
from gatehouse.runtime.supervised_process import SupervisedProcess
from gatehouse.runtime.watched_process import WatchedProcess
from gatehouse.sidecars.authenticator import config as authenticator
from gatehouse.sidecars.base import control
from gatehouse.sidecars.picker import config as picker
from gatehouse.sidecars.reviewer import config as reviewer
from gatehouse.sidecars.tls_connector import config as tls_connector
from kube_base.runtime import private_files
from kube_base.runtime.time_limits import scaled

log = structlog.get_logger("gatehouse.agent")

CONTROL_TIMEOUT_SECONDS = scaled(10.0)
"""Timeout in seconds of one configuration, including process start and reading certificates, which
take 0.2 s together.
"""

STOP_TIMEOUT_SECONDS = scaled(2.0)
"""Time in seconds for a sidecar to exit. The proxy has exited by then, and with it every
connection.
"""


class SidecarSpec(msgspec.Struct, frozen=True):
    """One kind of sidecar."""

    name: str
    package: str
    """Package of :mod:`gatehouse.sidecars`, an argument of its command."""
    sockets: str
    """Socket directory, relative to the run directory, which is the working directory of proxies.
    So configurations can name its sockets.
    """
    file: str
    """Name of the config file. A configuration that has it needs this sidecar."""


CONNECTOR_SIDECAR = SidecarSpec(
    "connector", "tls_connector", tls_connector.CONNECTOR_SOCKETS, tls_connector.CONNECTORS_FILE
)
AUTHENTICATOR_SIDECAR = SidecarSpec(
    "authenticator",
    "authenticator",
    authenticator.AUTHENTICATOR_SOCKETS,
    authenticator.AUTHENTICATORS_FILE,
)
REVIEWER_SIDECAR = SidecarSpec(
    "reviewer", "reviewer", reviewer.REVIEWER_SOCKETS, reviewer.REVIEWER_FILE
)
PICKER_SIDECAR = SidecarSpec("picker", "picker", picker.POOL_SOCKETS, picker.POOLS_FILE)

NGINX_SIDECARS = (CONNECTOR_SIDECAR, AUTHENTICATOR_SIDECAR, PICKER_SIDECAR)
ENVOY_SIDECARS = (AUTHENTICATOR_SIDECAR, REVIEWER_SIDECAR)


class SidecarError(Exception):
    """A sidecar cannot serve a configuration. The message names the sidecar and the reason."""


class ConfigRejectedError(SidecarError):
    """A working sidecar rejected its configuration."""


class SidecarProcess(SupervisedProcess):
    """Owner of one sidecar process with its files in directory `run`. Raises OSError.

    The process runs while a configuration needs it. :meth:`serve` starts it at once, also before
    :meth:`run`, and in place of one that is exiting because it was not needed.
    """

    def __init__(self, spec: SidecarSpec, run: Path, linger: float) -> None:
        """`linger`: seconds for which a socket stays open after it is no longer configured."""
        super().__init__(spec.name, timeouts.RESTARTS, log)
        self.name = spec.name
        self._linger = linger
        self._spec = spec
        self._directory = run / spec.sockets
        self._output = run / f"{spec.name}.log"
        self._run = run
        self.log = ErrorLog(self._output)
        # Every client of these sockets is trusted as the proxy.
        private_files.make_private_dir(self._directory)
        self._answered: WatchedProcess | None = None
        """The process that answered a request. If it then stops answering, it is exiting."""
        self._configurations: tuple[Path, ...] = ()
        self._lock = asyncio.Lock()
        self._became_needed = asyncio.Event()
        self._replaced = asyncio.Event()

    @property
    def needed(self) -> bool:
        """Return whether a configuration needs the sidecar."""
        return bool(self._configurations)

    def adopt(self) -> None:
        """Take over a process that an earlier agent started, if one runs."""
        pid = control.pid(self._directory)
        if pid is not None:
            self.adopt_process(WatchedProcess(pid))

    async def serve(self, *configurations: Path) -> None:
        """Serve everything in the directories `configurations`. Other sockets close after `linger`.

        Raises SidecarError, or ConfigRejectedError if the sidecar rejects the configurations. The
        previous configuration then stays in effect.
        """
        self._configurations = tuple(
            path for path in configurations if (path / self._spec.file).exists()
        )
        (self._became_needed.set if self.needed else self._became_needed.clear)()
        async with self._lock:
            await self._configure()

    def start(self) -> WatchedProcess:
        """Start the process. Raises OSError."""
        # -P: do not import modules from the working directory.
        program = [sys.executable, "-P", "-m", "gatehouse.sidecars", self._spec.package]
        command = [*program, str(self._directory), str(self._linger)]
        return watched_process.start_watched(command, output=self._output, cwd=self._run)

    async def prepare_start(self) -> None:
        """Wait until a configuration needs the sidecar."""
        await self._became_needed.wait()

    async def watch(self, process: WatchedProcess) -> None:
        """Configure a restarted process. Return after it has exited or was replaced."""
        self._replaced.clear()
        async with self._lock:
            if process is self.process is not self._answered and not process.exited.is_set():
                try:
                    await self._configure(process)
                except SidecarError as error:
                    log.warning(f"{self.name} not configured", error=str(error))
        events = (process.exited, self._replaced)
        waiting = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def after_exit(self, process: WatchedProcess) -> None:
        """Report the exit of a process."""
        if self.needed:
            await super().after_exit(process)
        else:
            log.info(f"{self.name} exited", pid=process.pid)

    async def quit(self) -> None:
        """Stop the process. Call after the proxy has exited and after :meth:`run` has ended."""
        self._configurations = ()
        await self.drain(signal.SIGTERM, STOP_TIMEOUT_SECONDS)

    async def _configure(self, started: WatchedProcess | None = None) -> None:
        """Send the configurations. Start a process if none listens and there are configurations.

        `started`: a process that is starting. Its exit is an error.
        """
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
                    if self._is_gone():
                        started = self._replace()
                    await asyncio.sleep(0.01)
        except TimeoutError as timeout:
            if self.process is not None:
                self.process.signal(signal.SIGKILL)
            raise self._error(f"no response within {CONTROL_TIMEOUT_SECONDS:g} s") from timeout
        self._answered = self.process
        if error:
            raise ConfigRejectedError(f"{self.name}: {error}")

    def _is_gone(self) -> bool:
        """Return whether no process listens or will listen."""
        process = self.process
        return process is None or process.exited.is_set() or process is self._answered

    def _replace(self) -> WatchedProcess:
        former = self.process
        try:
            process = self.start_process()
        except OSError as error:
            raise self._error(f"cannot be started: {error}") from error
        self.restarts += former is not None and former.exited.is_set()
        self._replaced.set()
        self.start_now()
        return process

    def _error(self, reason: str) -> SidecarError:
        return SidecarError(f"{self.name}: {reason}")

    def _last_message(self, position: int) -> str:
        lines, _ = self.log.lines(position)
        return message(lines[-1]) if lines else "no message in its log"


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
