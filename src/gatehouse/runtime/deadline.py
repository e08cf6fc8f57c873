"""Wait for an event or a deadline, whichever comes first."""

from __future__ import annotations

import asyncio
from typing import Protocol


class PendingDeadline(Protocol):
    """An expected event and its timeout. Equal values denote the same expectation."""

    @property
    def seconds(self) -> float:
        """Return the timeout in seconds."""


class DeadlineWaiter:
    """Waits for an event until the deadline of the expected client reaction.

    The deadline starts when the expectation appears and does not change while it stays equal.
    """

    def __init__(self) -> None:
        self._pending: PendingDeadline | None = None
        self._until: float | None = None

    async def wait(self, woken: asyncio.Event, pending: PendingDeadline | None) -> bool:
        """Wait until `woken` is set. Return False if the deadline passes first."""
        now = asyncio.get_running_loop().time()
        if pending != self._pending:
            self._pending = pending
            self._until = now + pending.seconds if pending else None
        try:
            async with asyncio.timeout_at(self._until):
                await woken.wait()
        except TimeoutError:
            self._pending = self._until = None
            return False
        return True
