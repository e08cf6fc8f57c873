"""Times that are the subject of a test: slow peers, and faults or traffic that last.

Waiting for what must come is :func:`fakes.patience.until`. `tests/repository/test_sleeps.py` has
the modules that use :func:`last`, with the reason.
"""

from __future__ import annotations

import asyncio


async def be_slow(seconds: float) -> None:
    """Delay what a peer of the product does next: a client, a backend or a provider."""
    await asyncio.sleep(seconds)


async def pace(seconds: float) -> None:
    """Pause between two requests, changes or looks of a load that goes on."""
    await asyncio.sleep(seconds)


async def last(seconds: float) -> None:
    """Let a state of the world last, which the product must withstand."""
    await asyncio.sleep(seconds)
