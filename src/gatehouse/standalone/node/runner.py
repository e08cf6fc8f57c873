"""Supervisor of one Pod's process: starts or adopts, probes, restarts and terminates it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec
import structlog

from gatehouse.kube import client as kube
from gatehouse.runtime.backoff import Backoff, BackoffPolicy
from gatehouse.standalone import process_records
from gatehouse.standalone.node import log_index, pods, probes
from gatehouse.standalone.node.volumes import VolumeError, Volumes

log = structlog.get_logger("gatehouse.node")

RESTARTS = BackoffPolicy(first=0.3, maximum=30.0, steady=60.0)
"""Back-off between starts of a process that keeps exiting."""

GRACE_SECONDS = 30.0
"""Default termination grace period of Kubernetes in seconds."""

RETRY_SECONDS = 0.3
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


class PodRunner:
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
        self.pod = pod
        self.address = address
        self.state = pods.Condition()
        self._directory = directory
        self._volumes = Volumes(client, pod, directory / VOLUMES)
        self._record = directory / RECORD
        self._launch = launch
        self._on_change = on_change
        self._process: process_records.Record | None = None
        self._ending = asyncio.Event()
        if process_records.recorded(self._record) is not None:
            # Keep the state that an earlier node process reported: traffic continues.
            self.state = pods.known_condition(pod, datetime.now(UTC))

    async def run(self) -> None:
        """Supervise the process until cancelled; the process itself keeps running then."""
        await self._fill()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._supervise())
            group.create_task(self._refresh())
            group.create_task(log_index.index(self._directory / "log"))

    async def end(self) -> None:
        """Terminate the process as its Pod specifies, also one of an earlier node process.

        Deletes the Pod's directory.
        """
        self._ending.set()
        process = self._process or process_records.recorded(self._record)
        if process is not None:
            await self._terminate(process)
        _remove(self._directory)

    async def _terminate(self, process: process_records.Record) -> None:
        total = pods.grace(self.pod, GRACE_SECONDS)
        # The node waits for the end of a process that it does not supervise, so that has no hook.
        hook = pods.pre_stop_seconds(self.pod) if self._process is not None else 0.0
        sleep = min(total, hook)
        await asyncio.sleep(sleep)
        process.signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            # As in Kubernetes, at least two seconds if the hook used up the grace period.
            async with asyncio.timeout(max(2.0, total - sleep)):
                await process_records.ended(process)
        process.signal(signal.SIGKILL)

    async def _fill(self) -> None:
        while True:
            try:
                await self._volumes.fill()
            except (VolumeError, kube.ApiError, OSError) as error:
                self._set_state(reason="ContainerCreating", message=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _refresh(self) -> None:
        while True:
            # ConfigMaps may change, too; a kubelet also reads them once per minute.
            await asyncio.sleep(min(60.0, self._volumes.refresh_in))
            await self._fill()

    async def _supervise(self) -> None:
        backoff, restarts = Backoff(RESTARTS), pods.restarts(self.pod)
        process = await self._adopt()
        while not self._ending.is_set():
            started_at = time.monotonic()
            if process is None:
                process = self._start()
                since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                self._set_state(running=True, ready=False, restarts=restarts, since=since)
            self._process = process
            reason = await self._probe_until_exit(process)
            if self._ending.is_set():
                return
            self._process, process, restarts = None, None, restarts + 1
            delay = backoff.ended(time.monotonic() - started_at)
            message = f"{reason or 'process exited'}; restarting in {delay:g} s"
            log.warning("process exited", pod=self.pod["metadata"]["name"], restarts=restarts)
            self._set_state(
                ready=False, restarts=restarts, reason="CrashLoopBackOff", message=message
            )
            await asyncio.sleep(delay)

    async def _adopt(self) -> process_records.Record | None:
        """Return the running process, unless it has another build."""
        process = process_records.recorded(self._record)
        if process is None:
            return None
        name, build = self.pod["metadata"]["name"], _read(self._directory / BUILD)
        if not self._launch.build or build == self._launch.build:
            log.info("process adopted", pod=name, pid=process.pid)
            return process
        log.info("process replaced after upgrade", pod=name, before=build, now=self._launch.build)
        # SIGTERM would terminate the proxy, too. After SIGKILL the next agent adopts it.
        process.signal(signal.SIGKILL)
        await process_records.ended(process)
        return None

    def _start(self) -> process_records.Record:
        log_file = self._directory / "log"
        if log_file.exists() and log_file.stat().st_size > 10_000_000:
            log_file.replace(log_file.with_name("log.1"))
        with log_file.open("ab") as output:
            child = self._popen(output)
        _reap(child)
        (self._directory / BUILD).write_text(self._launch.build)
        return process_records.record(child.pid, self._record)

    def _popen(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        mounts = self._volumes.mounts()
        environment = self._launch.env | {
            name: pods.relocate(value, mounts)
            for name, value in pods.environment(self.pod, self.address).items()
        }
        command = [pods.relocate(word, mounts) for word in self._launch.argv]
        if command[:1] == ["gatehouse"]:
            command[:1] = [sys.executable, "-m", "gatehouse"]
        return subprocess.Popen(
            command,
            env={**_inherited(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    async def _probe_until_exit(self, process: process_records.Record) -> str:
        """Probe a process until it exits. Return why a probe failed; empty if none did."""
        probing = asyncio.create_task(
            probes.watch(
                *(self.pod, self.address, lambda ready: self._set_state(ready=ready)),
                ready=self.state.ready,
            )
        )
        exited = asyncio.create_task(process_records.ended(process))
        reason = ""
        try:
            await asyncio.wait({probing, exited}, return_when=asyncio.FIRST_COMPLETED)
            if probing.done():
                reason = probing.result()
            if reason and not exited.done():
                name = self.pod["metadata"]["name"]
                log.warning("process killed", pod=name, reason=reason)
                self._set_state(ready=False)
                await self._terminate(process)
            await exited
        finally:
            for task in (probing, exited):
                task.cancel()
            await asyncio.gather(probing, exited, return_exceptions=True)
        return reason

    def _set_state(self, **changes: Any) -> None:
        if "running" not in changes and "reason" in changes:
            changes["running"] = False
        state = msgspec.structs.replace(self.state, **changes)
        if state != self.state:
            self.state = state
            self._on_change()


def _remove(directory: Path) -> None:
    shutil.rmtree(directory / VOLUMES, ignore_errors=True)
    with contextlib.suppress(OSError):
        for name in (RECORD, BUILD, "log", "log.1", log_index.INDEX):
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


_CHILDREN: list[subprocess.Popen[bytes]] = []


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Record a child and reap exited ones, so that none stays a zombie."""
    _CHILDREN[:] = [other for other in _CHILDREN if other.poll() is None]
    _CHILDREN.append(child)


def _inherited() -> dict[str, str]:
    """Return the part of the node's environment that local processes need."""
    names = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in names if name in os.environ}
