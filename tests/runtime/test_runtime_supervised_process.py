"""Supervision of one process: start, restart with back-off, adoption, end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import structlog

from gatehouse.runtime import procfs, watched_process
from gatehouse.runtime.backoff import BackoffPolicy
from gatehouse.runtime.supervised_process import SupervisedProcess
from gatehouse.runtime.watched_process import WatchedProcess

SLEEP = ("sleep", "60")
STUBBORN = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")


class Program(SupervisedProcess):
    """A program with a given command line."""

    def __init__(self, *command: str, first: float = 0.01) -> None:
        policy = BackoffPolicy(first, max(first, 10.0), steady=10.0)
        super().__init__("program", policy, structlog.get_logger("test"))
        self.command = command
        self.starts = 0

    def start(self) -> WatchedProcess:
        self.starts += 1
        return watched_process.start(self.command)

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


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


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
    child = watched_process.start(SLEEP)
    first = Program(*SLEEP)
    first.adopt_process(WatchedProcess(child.pid))
    task = asyncio.create_task(first.run())
    await asyncio.sleep(0.05)
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


async def test_process_is_not_replaced_when_its_exit_is_intended() -> None:
    program = Program(*SLEEP)
    async with running(program) as task:
        await until(lambda: program.running)
        program.ending.set()
        assert program.process is not None
        assert await program.process.end(signal.SIGTERM, 10.0)
        assert program.process.status == -signal.SIGTERM
        async with asyncio.timeout(10):
            await task
        assert program.starts == 1


@pytest.mark.parametrize("command", [SLEEP, STUBBORN], ids=["obedient", "stubborn"])
async def test_drain_ends_process_even_when_it_ignores_signals(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    output = tmp_path / "output"
    program = Program(*command)
    program.adopt_process(watched_process.start(command, output=output))
    await until(lambda: command is SLEEP or output.read_text() == "ready\n")
    pid = program.pid
    with structlog.testing.capture_logs() as logs:
        await program.drain(signal.SIGTERM, 0.2)
    assert not procfs.is_alive(pid)
    exceeded = "drain timeout exceeded" in [each["event"] for each in logs]
    assert exceeded == (command is STUBBORN)
