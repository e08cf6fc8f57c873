"""The one limit of waiting for what must come.

It costs nothing where the condition holds soon, and lets a machine that others keep busy be slow.
A time that is itself tested is no such limit: it is a named constant of its test.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

# It reads the factor.
import gatehouse  # noqa: F401
from kube_base.runtime.time_limits import time_factor

FACTOR = time_factor()
"""Factor of all time limits of tests and of the product, for machines slower than usual."""
SECONDS = 120 * FACTOR
KUBECTL_TIMEOUT = f"--timeout={SECONDS:.0f}s"
PAUSE_SECONDS = 0.02


def limit(times: int = 1) -> asyncio.Timeout:
    """Return a context that raises TimeoutError after the limit, or several times the limit."""
    return asyncio.timeout(times * SECONDS)


async def pause() -> None:
    """Pause in a loop that waits and has :func:`limit`, where :func:`until` does not suffice."""
    await asyncio.sleep(PAUSE_SECONDS)


def pause_thread() -> None:
    """Pause like :func:`pause`, without an event loop."""
    time.sleep(PAUSE_SECONDS)


async def until(condition: Callable[[], Any], why: Callable[[], object] = lambda: "") -> Any:
    """Wait until a condition, which may be a coroutine function, holds. Return its value.

    Raises TimeoutError, which names the condition. ``why`` tells what there is instead.
    """
    try:
        async with limit() as waiting:
            while not (value := await _value(condition)):
                await pause()
    except TimeoutError as error:
        if not waiting.expired():
            # The condition itself raised it.
            raise
        name = getattr(condition, "__qualname__", repr(condition))
        raise TimeoutError(f"{name} does not hold after {SECONDS:g} s: {why()}") from error
    return value


async def until_equal(ask: Callable[[], Any], expected: object) -> None:
    """Wait until a function, which may be a coroutine function, returns a value."""
    value: object = None
    try:
        async with limit():
            while (value := await _value(ask)) != expected:
                await pause()
    except TimeoutError:
        raise AssertionError(f"{value}, not {expected}") from None


async def _value(ask: Callable[[], Any]) -> Any:
    value = ask()
    return await value if inspect.isawaitable(value) else value


def wait_until(condition: Callable[[], Any], why: Callable[[], object] = lambda: "") -> Any:
    """Wait, without an event loop, until a condition holds. ``why`` tells what there is instead."""
    end = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < end, why()
        pause_thread()
    return value
