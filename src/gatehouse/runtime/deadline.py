"""Waiting for whatever comes first: something to do, or the end of one's patience."""

from __future__ import annotations

import asyncio
from typing import Protocol


class PendingDeadline(Protocol):
    """Something that must happen within a time. Equal values are the same occasion."""

    @property
    def seconds(self) -> float:
        """Return the time limit."""


class DeadlineWaiter:
    """Waits for something to happen, and for what a client is given time for, no longer."""

    def __init__(self) -> None:
        self._awaited: PendingDeadline | None = None
        self._until: float | None = None

    async def wait(self, woken: asyncio.Event, awaited: PendingDeadline | None) -> bool:
        """Wait until ``woken`` is set; returns False if time ran out first."""
        now = asyncio.get_running_loop().time()
        if awaited != self._awaited:
            self._awaited = awaited
            self._until = now + awaited.seconds if awaited else None
        try:
            async with asyncio.timeout_at(self._until):
                await woken.wait()
        except TimeoutError:
            self._awaited = self._until = None
            return False
        return True
