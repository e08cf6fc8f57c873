"""Supervisor of one Pod's process: its volumes, environment, probes and state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

from gatehouse import TIME_FACTOR_VARIABLE
from gatehouse.kube import client as kube
from gatehouse.runtime.supervised_process import SupervisedProcess
from gatehouse.runtime.watched_process import WatchedProcess
from gatehouse.standalone import process_records
from gatehouse.standalone.node import data_plane_users, log_index, pods, probes
from gatehouse.standalone.node.volumes import VolumeError, Volumes
from kube_base.runtime import private_files
from kube_base.runtime.backoff import BackoffPolicy

log = structlog.get_logger("gatehouse.node")

_RESTARTS = BackoffPolicy(first=0.3, maximum=30.0, steady=60.0)
"""Back-off between starts of a process that keeps exiting."""

_GRACE_SECONDS = 30.0
"""Default termination grace period of Kubernetes in seconds."""

_RETRY_SECONDS = 0.3
"""Delay in seconds before a retry to write volumes with missing sources."""


RECORD = "process.json"
"""File in a Pod's directory with the record of its process."""

BUILD = "build"
"""File beside it with the version of Gatehouse that started the process."""

VOLUMES = "volumes"


class Launch(msgspec.Struct, frozen=True):
    """Command of a Pod's process."""

    argv: tuple[str, ...]
    """``gatehouse`` as first word is the installation of the node itself."""
    env: dict[str, str] = {}
    """Default environment, overridden by the container's."""
    build: str = ""
    """Version of Gatehouse; a process of another is replaced. Empty for other programs."""
    user: int = 0
    """User of the process, 0 for that of the node."""
    confine: Callable[[int, Path, Sequence[str]], list[str]] | None = None
    """Return the command that runs a program as a user who sees the volumes."""


class PodRunner(SupervisedProcess):
    """Runs one Pod. ``on_change`` is called whenever :attr:`state` has changed."""

    def __init__(
        self,
        client: kube.Client,
        pod: Mapping[str, Any],
        address: str,
        directory: Path,
        launch: Launch,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__("process", _RESTARTS, log.bind(pod=pod["metadata"]["name"]))
        self.restarts = pods.restarts(pod)
        self.on_change = on_change
        self.pod = pod
        self.address = address
        self.state = pods.ProcessState()
        self._directory = directory
        self._volumes = Volumes(client, pod, directory / VOLUMES, launch.user)
        self._record = directory / RECORD
        self._launch = launch
        self._exit_reason = ""
        """Why a probe made an end of the process. Empty if it exited by itself."""
        if process_records.recorded(self._record) is not None:
            # Keep the state that an earlier node process reported: traffic continues.
            self.state = pods.known_condition(pod, datetime.now(UTC))

    async def run(self) -> None:
        """Supervise the process until cancelled; the process itself keeps running then."""
        await self._fill(self._report_waiting)
        await self._adopt()
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            group.create_task(self._refresh())
            group.create_task(log_index.index(self._directory / "log"))

    async def end(self) -> None:
        """Terminate the process as its Pod specifies, also one of an earlier node process.

        Deletes the Pod's directory.
        """
        self.ending.set()
        process = self.process or process_records.adopt_process(self._record)
        if process is not None:
            await self._terminate(process)
        _remove(self._directory)

    async def _terminate(self, process: WatchedProcess) -> None:
        total = pods.grace(self.pod, _GRACE_SECONDS)
        # The node waits for the end of a process that it does not supervise, so that has no hook.
        hook = pods.pre_stop_seconds(self.pod) if self.process is not None else 0.0
        sleep = min(total, hook)
        await asyncio.sleep(sleep)
        # As in Kubernetes, at least two seconds if the hook used up the grace period.
        await process.end(signal.SIGTERM, max(2.0, total - sleep))
        await process.kill()

    async def _fill(self, on_error: Callable[[str], None]) -> None:
        reported = ""
        while True:
            try:
                await self._volumes.fill()
            except (VolumeError, kube.ApiError, OSError) as error:
                if str(error) != reported:
                    reported = str(error)
                    on_error(reported)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    def _report_waiting(self, error: str) -> None:
        self._set_state(reason="ContainerCreating", message=error)

    def _log_stale(self, error: str) -> None:
        # The process serves with the volumes that it has.
        self._log.warning("volumes not refreshed", error=error)

    async def _refresh(self) -> None:
        while True:
            # ConfigMaps may change, too; a kubelet also reads them once per minute.
            await asyncio.sleep(min(60.0, self._volumes.refresh_in))
            await self._fill(self._log_stale)

    async def after_exit(self, process: WatchedProcess) -> None:
        """Report the exit in the Pod's state."""
        reason, self._exit_reason = self._exit_reason or "process exited", ""
        message = f"{reason}; restarting in {self.pause:g} s"
        self._set_state(
            ready=False, restarts=self.restarts, reason="CrashLoopBackOff", message=message
        )
        await super().after_exit(process)

    async def _adopt(self) -> None:
        """Adopt the running process, unless it has another build."""
        process = process_records.adopt_process(self._record)
        if process is None:
            return
        build = _read(self._directory / BUILD)
        if not self._launch.build or build == self._launch.build:
            self.adopt_process(process)
            return
        self._log.info("process replaced after upgrade", before=build, now=self._launch.build)
        # SIGTERM would terminate the proxy, too. After SIGKILL the next agent adopts it.
        await process.kill()

    def start(self) -> WatchedProcess:
        """Start the process with the Pod's command and environment. Raises OSError."""
        log_file = self._directory / "log"
        mounts = self._volumes.mounts()
        environment = self._launch.env | {
            name: pods.relocate(value, mounts)
            for name, value in pods.container_environment(self.pod, self.address).items()
        }
        command = [pods.relocate(word, mounts) for word in self._launch.argv]
        if command[:1] == ["gatehouse"]:
            command[:1] = [sys.executable, "-m", "gatehouse"]
        if self._launch.user and self._launch.confine is not None:
            volumes = self._directory / VOLUMES
            command = self._launch.confine(self._launch.user, volumes, command)
        private_files.replace_private_file(self._directory / BUILD, self._launch.build.encode())
        process = process_records.start_recorded(
            self._record, command, output=log_file, env={**_inherited(), **environment}
        )
        since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._set_state(running=True, ready=False, restarts=self.restarts, since=since)
        return process

    async def watch(self, process: WatchedProcess) -> None:
        """Probe the process until it exits. A failed probe ends it."""
        probing = asyncio.create_task(
            probes.watch(
                *(self.pod, self.address, lambda ready: self._set_state(ready=ready)),
                ready=self.state.ready,
            )
        )
        exited = asyncio.create_task(process.exited.wait())
        try:
            await asyncio.wait({probing, exited}, return_when=asyncio.FIRST_COMPLETED)
            if probing.done():
                self._exit_reason = probing.result()
            if self._exit_reason and not exited.done():
                self._log.warning("process killed", reason=self._exit_reason)
                self._set_state(ready=False)
                await self._terminate(process)
            await exited
        finally:
            for task in (probing, exited):
                task.cancel()
            await asyncio.gather(probing, exited, return_exceptions=True)

    def _set_state(self, **changes: Any) -> None:
        if "running" not in changes and "reason" in changes:
            changes["running"] = False
        state = msgspec.structs.replace(self.state, **changes)
        if state != self.state:
            self.state = state
            self.on_change()


def _remove(directory: Path) -> None:
    shutil.rmtree(directory / VOLUMES, ignore_errors=True)
    with contextlib.suppress(OSError):
        logs = "log", log_index.PREVIOUS, log_index.INDEX
        for name in (RECORD, BUILD, data_plane_users.USER, *logs):
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _inherited() -> dict[str, str]:
    """Return the part of the node's environment that local processes need."""
    names = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", TIME_FACTOR_VARIABLE)
    return {name: os.environ[name] for name in names if name in os.environ}
