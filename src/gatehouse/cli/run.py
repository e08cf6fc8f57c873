"""Event loop and signal handling of a command that runs until a signal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from gatehouse.cli.errors import CLIError
from gatehouse.runtime import heartbeat
from gatehouse.standalone import process_records
from kube_base.runtime import open_files, private_files

Part = Callable[[asyncio.Event, asyncio.Event], Coroutine[Any, Any, None]]


def run_until_signal(part: Part, *, expected: tuple[type[Exception], ...] = ()) -> None:
    """Run ``part(stop, leave)``: SIGINT and SIGTERM set ``stop``, SIGHUP sets ``leave``.

    A part that treats both alike uses :func:`any_event`. Files that the process and its children
    create are readable by its user only. The kernel sends SIGHUP when the
    supervisor dies. Exceptions of the types ``expected`` are raised as CLIError.
    """
    private_files.restrict_umask()
    if os.environ.get("GATEHOUSE_SUPERVISED"):
        process_records.end_with_parent()
    open_files.raise_limit()
    known: tuple[type[Exception], ...] = (*expected, OSError)
    try:
        uvloop.run(_run(part))
    except BaseExceptionGroup as group:
        first = _first(group)
        if not isinstance(first, known):
            raise
        raise CLIError(str(first) or type(first).__name__) from group
    except known as error:
        raise CLIError(str(error)) from error


async def _run(part: Part) -> None:
    stop, leave = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, leave.set)
    _background(heartbeat.send_heartbeats())
    await part(stop, leave)


async def any_event(stop: asyncio.Event, leave: asyncio.Event) -> asyncio.Event:
    """Return an event that is set as soon as `stop` or `leave` is set."""
    both = asyncio.Event()

    async def pass_on(event: asyncio.Event) -> None:
        await event.wait()
        both.set()

    for event in (stop, leave):
        _background(pass_on(event))
    return both


_TASKS: set[asyncio.Task[None]] = set()


def _background(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
