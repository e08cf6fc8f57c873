"""The one limit of waiting for what must come.

It costs nothing where the condition holds soon, and lets a machine that others keep busy be slow.
A time that is itself tested is no such limit: it is a named constant of its test.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Callable
from typing import Any

FACTOR = float(os.environ.get("GATEHOUSE_TIME_FACTOR", "1"))
"""Factor of all time limits of tests, for machines slower than usual."""
SECONDS = 120 * FACTOR
PAUSE_SECONDS = 0.02


def limit(times: int = 1) -> asyncio.Timeout:
    """Return a context that raises TimeoutError after the limit, or several times the limit."""
    return asyncio.timeout(times * SECONDS)


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until a condition, which may be a coroutine function, holds. Return its value."""
    async with limit():
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(PAUSE_SECONDS)


def wait_until(condition: Callable[[], Any], why: Callable[[], object] = lambda: "") -> Any:
    """Wait, without an event loop, until a condition holds. ``why`` tells what there is instead."""
    end = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < end, why()
        time.sleep(PAUSE_SECONDS)
    return value
