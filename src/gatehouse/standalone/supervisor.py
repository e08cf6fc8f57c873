"""Supervisor of the control plane's processes: ordered start, restart and ordered stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from gatehouse.runtime.backoff import Backoff, BackoffPolicy
from gatehouse.standalone import process_records

log = structlog.get_logger("gatehouse.up")

RESTARTS = BackoffPolicy(first=0.2, maximum=10.0, steady=30.0)
"""Back-off between starts of a process that keeps exiting."""

GRACE_SECONDS = 40.0
"""Grace period of a process in seconds; the node needs 30 s for its data planes."""

LEFTOVER_GRACE = 5.0
"""Time in seconds to wait for the exit of killed leftovers."""

ATTEMPTS = 3
"""Number of exits of a process before all are ready after which the start fails."""


class StartError(Exception):
    """Raised if a process does not start; its own log has the reason."""


class Part(msgspec.Struct, frozen=True):
    """One process of the control plane."""

    name: str
    arguments: tuple[str, ...]
    """Arguments of the `gatehouse` command."""
    ready: Callable[[], Awaitable[None]] | None = None
    """Returns when other processes may depend on it."""


class Supervisor:
    """Starts processes in the given order and stops them in reverse order."""

    def __init__(
        self, parts: Sequence[Part], run: Path, leaving: asyncio.Event | None = None
    ) -> None:
        """``leaving``: if it is set by the time of the end, data planes go on."""
        self._parts = parts
        self._run = run
        self._leaving = leaving or asyncio.Event()
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._ready = False
        self._given_up = asyncio.Event()

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], None]) -> None:
        """Run until ``stop`` is set. Raises StartError if a process repeatedly exits at start."""
        await self._end_leftovers()
        tasks = []
        try:
            for part in self._parts:
                tasks.append(asyncio.create_task(self._supervise(part)))
                if part.ready is None:
                    continue
                outcome = await _first_done(part.ready(), stop.wait(), self._given_up.wait())
                if outcome == 1:
                    return
                if outcome == 2:
                    raise StartError(f"{part.name} failed to start; see its log above")
            self._ready = True
            on_ready()
            await stop.wait()
        finally:
            self._stopping.set()
            for part in reversed(self._parts):
                await self._end(part)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _supervise(self, part: Part) -> None:
        backoff, exits = Backoff(RESTARTS), 0
        while not self._stopping.is_set():
            started = time.monotonic()
            child = await self._start(part)
            status = await child.wait()
            if self._stopping.is_set():
                return
            delay = backoff.ended(time.monotonic() - started)
            log.warning("process exited", part=part.name, status=status, restart_in=delay)
            exits += 1
            if exits == ATTEMPTS and not self._ready:
                self._given_up.set()
                return
            await asyncio.sleep(delay)

    async def _start(self, part: Part) -> asyncio.subprocess.Process:
        # The child sets PR_SET_PDEATHSIG itself: a preexec_fn would run between fork and
        # exec of a process with threads.
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gatehouse", *part.arguments),
            stdin=asyncio.subprocess.DEVNULL,
            env={**os.environ, "GATEHOUSE_SUPERVISED": "1"},
            start_new_session=True,
        )
        process_records.record(child.pid, self._run / f"{part.name}.json")
        self._children[part.name] = child
        log.info("process started", part=part.name, pid=child.pid)
        return child

    async def _end(self, part: Part) -> None:
        child = self._children.get(part.name)
        if child is None or child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGHUP if self._leaving.is_set() else signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await child.wait()
        except TimeoutError:
            log.warning("process killed", part=part.name, after_seconds=GRACE_SECONDS)
            child.kill()
            await child.wait()
        log.info("process stopped", part=part.name)

    async def _end_leftovers(self) -> None:
        """Kill processes of a killed supervisor. Data planes keep running."""
        leftovers = []
        for part in self._parts:
            record = process_records.recorded(self._run / f"{part.name}.json")
            if record is not None:
                log.info("killing leftover process", part=part.name, pid=record.pid)
                # Not SIGTERM: the node would stop the data planes, too.
                record.signal(signal.SIGKILL)
                leftovers.append(record)
        for record in leftovers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEFTOVER_GRACE):
                    await process_records.ended(record)


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
