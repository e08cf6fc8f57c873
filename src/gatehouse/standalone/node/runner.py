"""Keeps the process of one Pod running: started or adopted, probed, restarted, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec
import structlog

from gatehouse.kube import client as kube
from gatehouse.standalone import process_records
from gatehouse.standalone.node import lifecycle, log_index, pods, probes
from gatehouse.standalone.node.volumes import VolumeError, Volumes

log = structlog.get_logger("gatehouse.node")

RESTART_FIRST, RESTART_LAST = 0.3, 30.0
"""Seconds before a process that ended is started again."""

RESTART_BACKOFF_RESET_SECONDS = 60.0
"""A process that lived this many seconds starts again without delay grown by earlier deaths."""

GRACE_SECONDS = 30.0
"""Seconds for a graceful end, Kubernetes' default."""

RETRY_SECONDS = 0.3
"""Seconds until volumes are filled again whose sources are not there yet."""


RECORD = "process.json"
"""In a Pod's directory: which process is its own."""

BUILD = "build"
"""Beside it: by which version of Gatehouse it was started."""

VOLUMES = "volumes"


class Launch(msgspec.Struct, frozen=True):
    """What is started for a Pod."""

    argv: tuple[str, ...]
    enter: tuple[str, ...] = ()
    """Words in front that start it in a network of its own."""
    env: dict[str, str] = {}
    """In addition to the container's own environment, which wins. With a PATH, ``gatehouse`` is
    what is found there, and otherwise what the node itself is of."""
    build: str = ""
    """Which version of Gatehouse this is: a process of another is replaced. Empty: none of ours."""


class PodRunner:
    """One Pod. ``on_change`` is called whenever :attr:`state` changed."""

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
            # What it was is not forgotten by another node: traffic goes on.
            self.state = pods.known_condition(pod, datetime.now(UTC))

    async def run(self) -> None:
        """Keep the process running until cancelled, which leaves it running."""
        await self._fill()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._supervise())
            group.create_task(self._refresh())
            group.create_task(log_index.index(self._directory / "log"))

    async def end(self, grace: float | None = None) -> None:
        """End the process as its Pod asks for, and remove the Pod's directory.

        ``grace``: seconds for all of that; None: as the Pod says.
        """
        self._ending.set()
        await clear(self._directory, await self._before_end(grace), self._process)

    async def _before_end(self, grace: float | None) -> float:
        """Do what comes before the end; gives the seconds that are left for the end itself."""
        left = pods.grace(self.pod, GRACE_SECONDS) if grace is None else grace
        began = time.monotonic()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await lifecycle.before_end(self.pod, self.address, self._spawn)
        # As in Kubernetes, two seconds more where what came before took everything.
        return max(2.0, left - (time.monotonic() - began))

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
            # A ConfigMap may change as well; a kubelet looks once a minute.
            await asyncio.sleep(min(60.0, self._volumes.refresh_in))
            await self._fill()

    async def _supervise(self) -> None:
        delay, restarts = RESTART_FIRST, pods.restarts(self.pod)
        process = await self._adopt()
        while not self._ending.is_set():
            begun = time.monotonic()
            if process is None:
                process = self._start()
                since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                self._set_state(
                    running=True, started=False, ready=False, restarts=restarts, since=since
                )
            self._process = process
            why = await self._live(process)
            if self._ending.is_set():
                return
            self._process, process, restarts = None, None, restarts + 1
            if time.monotonic() - begun > RESTART_BACKOFF_RESET_SECONDS:
                delay = RESTART_FIRST
            message = f"{why or 'the process ended'}; it is started again in {delay:g} s"
            log.warning("ended", pod=self.pod["metadata"]["name"], restarts=restarts)
            self._set_state(
                started=False,
                ready=False,
                restarts=restarts,
                reason="CrashLoopBackOff",
                message=message,
            )
            await asyncio.sleep(delay)
            delay = min(RESTART_LAST, delay * 2)

    async def _adopt(self) -> process_records.Record | None:
        """Give the process that runs already, unless it is of another build."""
        process = process_records.recorded(self._record)
        if process is None:
            return None
        name, build = self.pod["metadata"]["name"], _read(self._directory / BUILD)
        if not self._launch.build or build == self._launch.build:
            log.info("adopted", pod=name, pid=process.pid)
            return process
        log.info("upgraded", pod=name, before=build, now=self._launch.build)
        # Not asked to end, which would end the proxy too: the next agent adopts that.
        process.signal(signal.SIGKILL)
        await process_records.ended(process)
        return None

    def _start(self) -> process_records.Record:
        child = self._spawn(self._launch.argv)
        _reap(child)
        (self._directory / BUILD).write_text(self._launch.build)
        return process_records.record(child.pid, self._record)

    def _spawn(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        log_file = self._directory / "log"
        if log_file.exists() and log_file.stat().st_size > 10_000_000:
            log_file.replace(log_file.with_name("log.1"))
        with log_file.open("ab") as output:
            return self._popen(words, output)

    def _spawn_quietly(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        return self._popen(words, subprocess.DEVNULL)

    def _popen(self, words: Sequence[str], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        mounts = self._volumes.mounts()
        environment = self._launch.env | {
            name: pods.relocate(value, mounts)
            for name, value in pods.environment(self.pod, self.address).items()
        }
        command = [pods.relocate(word, mounts) for word in words]
        if command[:1] == ["gatehouse"] and "PATH" not in self._launch.env:
            command[:1] = [sys.executable, "-m", "gatehouse"]
        return subprocess.Popen(
            [*self._launch.enter, *command],
            env={**_inherited(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    async def _live(self, process: process_records.Record) -> str:
        """Probe a process until it ends; gives why it had to, if a probe wanted that."""
        reasons: list[tuple[str, float | None]] = []
        told = probes.ProbeCallbacks(
            started=lambda: self._set_state(started=True),
            ready=lambda ready: self._set_state(ready=ready),
            failed=lambda reason, grace: reasons.append((reason, grace)),
        )
        known = self.state
        watching = asyncio.create_task(
            probes.watch(
                *(self.pod, self.address, self._spawn_quietly, told),
                started=known.started,
                ready=known.ready,
            )
        )
        gone = asyncio.create_task(process_records.ended(process))
        try:
            await asyncio.wait({watching, gone}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            if reasons and not gone.done():
                await self._kill(process, *reasons[0])
            await gone
        finally:
            for task in (watching, gone):
                task.cancel()
            await asyncio.gather(watching, gone, return_exceptions=True)
        return reasons[0][0] if reasons else ""

    async def _kill(self, process: process_records.Record, why: str, grace: float | None) -> None:
        """End a process that its probes have given up, as its Pod asks for."""
        log.warning("killed", pod=self.pod["metadata"]["name"], reason=why)
        self._set_state(ready=False)
        await _terminate(process, await self._before_end(grace))

    def _set_state(self, **changes: Any) -> None:
        if "running" not in changes and "reason" in changes:
            changes["running"] = False
        state = msgspec.structs.replace(self.state, **changes)
        if state != self.state:
            self.state = state
            self._on_change()


async def clear(
    directory: Path, grace: float = GRACE_SECONDS, process: process_records.Record | None = None
) -> None:
    """End what runs for a Pod's directory, by this node or one before it, and remove that."""
    process = process or process_records.recorded(directory / RECORD)
    if process is not None:
        await _terminate(process, grace)
    _remove(directory)


async def _terminate(process: process_records.Record, grace: float) -> None:
    process.signal(signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace):
            await process_records.ended(process)
    process.signal(signal.SIGKILL)


def _remove(directory: Path) -> None:
    shutil.rmtree(directory / VOLUMES, ignore_errors=True)
    with contextlib.suppress(OSError):
        for name in (RECORD, BUILD, "log", "log.1", log_index.INDEX, pods.IDENTITY):
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


_CHILDREN: list[subprocess.Popen[bytes]] = []


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Remember a child, and wait for those that ended, so that none stays a zombie."""
    _CHILDREN[:] = [other for other in _CHILDREN if other.poll() is None]
    _CHILDREN.append(child)


def _inherited() -> dict[str, str]:
    """Give what a local process needs of our own environment; the rest is the Pod's."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in kept if name in os.environ}
