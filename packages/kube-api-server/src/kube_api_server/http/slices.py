"""Loops over many objects that let other requests run in between."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")

SLICE_SECONDS = 0.005
"""Time in seconds after which a loop pauses."""

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
    weakref.WeakKeyDictionary()
)


async def for_each(items: Iterable[Item], step: Callable[[Item], object]) -> None:
    """Call `step` with every item. Between two requests of the event loop only one slice runs.

    Other tasks run meanwhile, so `items` must not be a view of something that they change.
    """
    turn = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    remaining = iter(items)
    while True:
        async with turn:
            end = time.perf_counter() + SLICE_SECONDS
            for item in remaining:
                step(item)
                if time.perf_counter() > end:
                    break
            else:
                return
        await asyncio.sleep(0)
