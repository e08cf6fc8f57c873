"""Per-cluster limit on concurrent reviews; clusters do not block each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from kube_base.runtime.time_limits import scaled

MAX_CONCURRENT_REVIEWS = 32
"""Maximum number of concurrent reviews of one cluster."""

MAX_QUEUED = 512
"""Maximum number of reviews of one cluster that wait. More are rejected at once."""

WAIT_SECONDS = scaled(2.0)


class BusyError(Exception):
    """Too many reviews of a cluster. The message names it."""


class _Queue:
    def __init__(self, concurrent: int) -> None:
        self.free = asyncio.Semaphore(concurrent)
        self.active = 0
        """Number of running and waiting reviews."""


class ClusterLimiter:
    """Limits concurrent reviews for each cluster."""

    def __init__(
        self,
        concurrent: int = MAX_CONCURRENT_REVIEWS,
        waiting: int = MAX_QUEUED,
        seconds: float = WAIT_SECONDS,
    ) -> None:
        self._concurrent, self._limit, self._seconds = concurrent, concurrent + waiting, seconds
        self._queues: dict[str, _Queue] = {}

    @property
    def active(self) -> dict[str, int]:
        """Number of running and waiting reviews by cluster."""
        return {cluster: queue.active for cluster, queue in self._queues.items()}

    @contextlib.asynccontextmanager
    async def acquire(self, cluster: str) -> AsyncIterator[None]:
        """Wait for a free slot and hold it. Raises BusyError."""
        queue = self._queues.setdefault(cluster, _Queue(self._concurrent))
        if queue.active >= self._limit:
            raise BusyError(f"{cluster}: too many waiting reviews")
        queue.active += 1
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    await queue.free.acquire()
            except TimeoutError as error:
                late = f"{cluster}: no free slot for a review within {self._seconds:g} s"
                raise BusyError(late) from error
            try:
                yield
            finally:
                queue.free.release()
        finally:
            queue.active -= 1
            if not queue.active:
                self._queues.pop(cluster, None)
