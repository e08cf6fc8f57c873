"""Supervision of one process: start, restart with back-off, adoption, end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from fakes import patience
from fakes.patience import until
from gatehouse.runtime import procfs, watched_process
from gatehouse.runtime.supervised_process import SupervisedProcess
from gatehouse.runtime.watched_process import WatchedProcess
from kube_base.runtime.backoff import BackoffPolicy

SLEEP = ("sleep", "60")
STUBBORN = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")


class Program(SupervisedProcess):
    """A program with a given command line."""

    def __init__(self, *command: str, first: float = 0.01) -> None:
        policy = BackoffPolicy(first, max(first, 10.0), steady=10.0)
        super().__init__("program", policy, structlog.get_logger("test"))
        self.command = command
        self.starts = 0
        self.watched: WatchedProcess | None = None
        """Process whose exit the supervisor awaits."""

    def start(self) -> WatchedProcess:
        self.starts += 1
        return watched_process.start_watched(self.command)

    async def watch(self, process: WatchedProcess) -> None:
        self.watched = process
        await self.wait_for_end(process)

    async def wait_for_end(self, process: WatchedProcess) -> None:
        await process.exited.wait()

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0


@contextlib.asynccontextmanager
async def running(program: Program) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(program.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if program.process is not None:
            await program.process.kill()


async def test_dead_process_is_replaced_and_reported() -> None:
    program = Program(*SLEEP)
    changes: list[bool] = []
    program.on_change = lambda: changes.append(program.running)
    async with running(program):
        await until(lambda: program.running)
        dead = program.pid
        assert program.process is not None
        program.process.signal(signal.SIGKILL)
        await until(lambda: program.pid not in (0, dead))
        assert program.restarts == 1
        assert changes == [True, False, True]


async def test_failed_start_is_retried_after_pause(tmp_path: Path) -> None:
    program = Program(str(tmp_path / "missing"))
    async with running(program):
        await until(lambda: program.starts > 1)
        assert program.restarts == 0
        program.command = SLEEP
        await until(lambda: program.running)


async def test_start_now_ends_the_pause(tmp_path: Path) -> None:
    program = Program(str(tmp_path / "missing"), first=60.0)
    async with running(program):
        await until(lambda: program.starts)
        program.command = SLEEP
        program.start_now()
        await until(lambda: program.running)


async def test_adopted_process_is_watched_and_survives_cancelled_supervisor() -> None:
    child = watched_process.start_watched(SLEEP)
    first = Program(*SLEEP)
    first.adopt_process(WatchedProcess(child.pid))
    task = asyncio.create_task(first.run())
    await until(lambda: first.watched is first.process)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert first.starts == 0
    assert procfs.is_alive(child.pid)
    second = Program(*SLEEP)
    second.adopt_process(WatchedProcess(child.pid))
    async with running(second):
        await child.kill()
        await until(lambda: second.starts)
        assert second.restarts == 1


class Handover(Program):
    """A program whose former process may run beside its replacement."""

    replaced: asyncio.Event

    async def wait_for_end(self, process: WatchedProcess) -> None:
        self.replaced = asyncio.Event()
        waiting = [asyncio.create_task(event.wait()) for event in (process.exited, self.replaced)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()


async def test_replacement_is_watched_while_the_former_process_runs() -> None:
    program = Handover(*SLEEP)
    async with running(program):
        await until(lambda: program.pid)
        former = program.process
        assert former is not None
        await until(lambda: program.watched is former)
        second = program.start_process()
        program.replaced.set()
        await until(lambda: program.watched is second)
        assert not former.exited.is_set()
        assert (program.starts, program.restarts) == (2, 0)
        await second.kill()
        await until(lambda: program.starts == 3 and program.process is not second)
        assert program.restarts == 1
        await former.kill()


async def test_process_that_another_task_starts_during_a_pause_is_not_started_twice() -> None:
    program = Program("no-such-command", first=60.0)
    async with running(program):
        await until(lambda: program.starts == 1)
        program.command = SLEEP
        process = program.start_process()
        program.start_now()
        await until(lambda: program.watched is process)
        assert (program.starts, program.process) == (2, process)
        await process.kill()
        await until(lambda: program.restarts == 1)


async def test_exit_of_an_idle_process_is_no_restart() -> None:
    class Idle(Program):
        needed = False

    program = Idle(*SLEEP, first=0.01)
    async with running(program):
        await until(lambda: program.pid)
        assert program.process is not None
        await program.process.kill()
        await until(lambda: program.starts == 2)
        assert program.restarts == 0


async def test_process_is_not_replaced_when_its_exit_is_intended() -> None:
    program = Program(*SLEEP)
    async with running(program) as task:
        await until(lambda: program.running)
        program.ending.set()
        assert program.process is not None
        assert await program.process.end(signal.SIGTERM, 10.0)
        assert program.process.status == -signal.SIGTERM
        async with patience.limit():
            await task
        assert program.starts == 1


@pytest.mark.parametrize("command", [SLEEP, STUBBORN], ids=["obedient", "stubborn"])
async def test_drain_ends_process_even_when_it_ignores_signals(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    output = tmp_path / "output"
    program = Program(*command)
    program.adopt_process(watched_process.start_watched(command, output=output))
    await until(lambda: command is SLEEP or output.read_text() == "ready\n")
    pid = program.pid
    with structlog.testing.capture_logs() as logs:
        await program.drain(signal.SIGTERM, 0.2)
    assert not procfs.is_alive(pid)
    exceeded = "drain timeout exceeded" in [log["event"] for log in logs]
    assert exceeded == (command is STUBBORN)


class Idle(Program):
    """A program that is never needed."""

    async def prepare_start(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("steps", range(6))
async def test_supervisor_is_cancelled_while_its_pause_ends(steps: int) -> None:
    program = Idle("true")
    program.pause = 60.0
    supervisor = asyncio.create_task(program.run())
    await asyncio.sleep(0)
    program.start_now()
    for _ in range(steps):
        await asyncio.sleep(0)
    supervisor.cancel()
    done, _ = await asyncio.wait([supervisor], timeout=patience.SECONDS)
    assert done
    assert supervisor.cancelled()
