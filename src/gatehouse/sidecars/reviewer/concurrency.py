"""How much a cluster is asked at a time: what one cluster makes wait, no other one waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

MAX_CONCURRENT_REVIEWS = 32
"""Reviews of one cluster that are asked at a time."""

MAX_QUEUED = 512
"""Reviews of one cluster that wait for that; more are refused at once."""

WAIT_SECONDS = 2.0


class BusyError(Exception):
    """Too much is being asked already; the message says of whom."""


class _Queue:
    def __init__(self, at_once: int) -> None:
        self.free = asyncio.Semaphore(at_once)
        self.asked = 0
        """Reviews that are asked, or wait."""


class ClusterLimiter:
    """Gives turns, cluster by cluster."""

    def __init__(
        self,
        at_once: int = MAX_CONCURRENT_REVIEWS,
        waiting: int = MAX_QUEUED,
        seconds: float = WAIT_SECONDS,
    ) -> None:
        self._at_once, self._most, self._seconds = at_once, at_once + waiting, seconds
        self._queues: dict[str, _Queue] = {}

    @property
    def asked(self) -> dict[str, int]:
        """How many reviews each cluster is asked, or wait for it, now."""
        return {cluster: queue.asked for cluster, queue in self._queues.items()}

    @contextlib.asynccontextmanager
    async def acquire(self, cluster: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it. Raises BusyError."""
        queue = self._queues.setdefault(cluster, _Queue(self._at_once))
        if queue.asked >= self._most:
            raise BusyError(f"{cluster}: too many reviews are waited for")
        queue.asked += 1
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    await queue.free.acquire()
            except TimeoutError as error:
                late = f"{cluster}: no turn within {self._seconds:g} s among other reviews"
                raise BusyError(late) from error
            try:
                yield
            finally:
                queue.free.release()
        finally:
            queue.asked -= 1
            if not queue.asked:
                self._queues.pop(cluster, None)
