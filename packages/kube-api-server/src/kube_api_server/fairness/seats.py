"""Seats of one priority level, shared fairly among flows.

Each flow has a queue of its own. A free seat goes to the flow that holds the fewest seats, and
among equals to the one that has waited longest for its turn. One flow holds at most half of the
seats, so that a seat for another one is usually free at once. kube-apiserver hashes flows to a
fixed number of queues (shuffle sharding), which isolates them with high probability only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

import msgspec

QUEUE_LENGTH = 50
"""Maximum number of waiting requests of a flow, as in kube-apiserver."""

TOTAL_QUEUE_LENGTH = 2000
"""Maximum number of waiting requests of a level."""

QUEUE_WAIT_SECONDS = 15.0
"""Maximum time in seconds in a queue, as in kube-apiserver: a quarter of a request's timeout."""


class SeatRejectedError(Exception):
    """A request that gets no seat. `reason` is `queue-full` or `time-out`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Waiter(msgspec.Struct, eq=False):
    seats: int
    granted: asyncio.Future[None]


class SeatPool:
    """The seats of one level."""

    def __init__(self, seats: int) -> None:
        self.seats = max(seats, 1)
        self.flow_limit = max(self.seats // 2, 1)
        """Maximum number of seats of one flow."""
        self.used = 0
        self.waiting = 0
        self._used_by: dict[str, int] = {}
        self._queues: dict[str, deque[_Waiter]] = {}
        """Waiting requests by flow. The flow that was served last is the last one."""

    @contextlib.asynccontextmanager
    async def occupied(self, flow: str, seats: int = 1) -> AsyncIterator[None]:
        """Hold seats inside the context. Raises SeatRejectedError."""
        seats = min(seats, self.flow_limit)
        await self._acquire(flow, seats)
        try:
            yield
        finally:
            self._release(flow, seats)

    async def _acquire(self, flow: str, seats: int) -> None:
        queue = self._queues.get(flow)
        if queue is None and not self._others_wait() and self._fits(flow, seats):
            self._take(flow, seats)
            return
        if self.waiting >= TOTAL_QUEUE_LENGTH or (queue and len(queue) >= QUEUE_LENGTH):
            raise SeatRejectedError("queue-full")
        waiter = _Waiter(seats, asyncio.get_running_loop().create_future())
        self._queues.setdefault(flow, deque()).append(waiter)
        self.waiting += 1
        self._dispatch()
        try:
            async with asyncio.timeout(QUEUE_WAIT_SECONDS):
                await waiter.granted
        except BaseException as error:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._release(flow, seats)
            else:
                self._leave(flow, waiter)
            if isinstance(error, TimeoutError):
                raise SeatRejectedError("time-out") from error
            raise

    def _others_wait(self) -> bool:
        """Return whether a flow waits that may have more seats. It comes first."""
        return any(self._eligible(flow, queue[0]) for flow, queue in self._queues.items())

    def _eligible(self, flow: str, waiter: _Waiter) -> bool:
        return self._used_by.get(flow, 0) + waiter.seats <= self.flow_limit

    def _fits(self, flow: str, seats: int) -> bool:
        free = self.used + seats <= self.seats
        return free and self._used_by.get(flow, 0) + seats <= self.flow_limit

    def _take(self, flow: str, seats: int) -> None:
        self.used += seats
        self._used_by[flow] = self._used_by.get(flow, 0) + seats

    def _release(self, flow: str, seats: int) -> None:
        self.used -= seats
        self._used_by[flow] -= seats
        if not self._used_by[flow]:
            del self._used_by[flow]
        self._dispatch()

    def _leave(self, flow: str, waiter: _Waiter) -> None:
        """Remove a request that no longer waits."""
        queue = self._queues.get(flow)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            self.waiting -= 1
            if not queue:
                del self._queues[flow]
        # It may have held back others.
        self._dispatch()

    def _dispatch(self) -> None:
        """Grant free seats. The chosen request never lets a smaller one overtake it."""
        while self._queues:
            eligible = [
                flow for flow, queue in self._queues.items() if self._eligible(flow, queue[0])
            ]
            if not eligible:
                return
            flow = min(eligible, key=lambda candidate: self._used_by.get(candidate, 0))
            queue = self._queues[flow]
            if self.used + queue[0].seats > self.seats:
                return
            waiter = queue.popleft()
            self.waiting -= 1
            del self._queues[flow]
            if queue:
                self._queues[flow] = queue
            # A cancelled request leaves its queue only when its task runs again.
            if not waiter.granted.done():
                self._take(flow, waiter.seats)
                waiter.granted.set_result(None)
