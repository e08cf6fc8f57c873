"""Stalls of the event loop, in CPU time. Other processes on the machine do not add to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from fakes.durations import pace

MAX_STALL_SECONDS = 0.5
"""Maximum CPU time in seconds without a turn of the event loop, for any request.

The largest objects take 50 ms. Attacks took 3 s to minutes.
"""


@contextlib.asynccontextmanager
async def no_stalls() -> AsyncIterator[None]:
    """Check that the event loop, which the server shares with the test, runs tasks in time.

    A stall is the CPU time that this process used, in any thread, between two turns of the loop.
    """
    stalls: list[float] = []

    async def measure() -> None:
        while True:
            started = time.process_time()
            try:
                await pace(0.001)
            finally:
                stalls.append(time.process_time() - started)

    task = asyncio.create_task(measure())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert max(stalls) < MAX_STALL_SECONDS
