"""Deadlines found in objects, such as certificate expiry. Triggers a compile pass when one passes.

The compilation reads no clock. Each deadline is an input of its own, so that only its dependents
are recomputed when it passes.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from gatehouse.compiler.frontends.inputs import deadline_key
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table

MAX_SLEEP_SECONDS = 60.0
"""Maximum time in seconds between two reads of the clock. The clock may be set, and it continues
while a machine is suspended."""


class Deadlines:
    """Tells the compilation which deadlines of the last pass have passed."""

    def __init__(
        self, put: Callable[[Key, Any], bool], clock: Callable[[], float] = time.time
    ) -> None:
        """Create it without deadlines.

        ``put`` stores an input and returns whether it changed. ``clock`` returns Unix seconds.
        """
        self._put, self._clock = put, clock
        self._by_object: Table[Key, tuple[int, ...]] = Table()
        self._references: Counter[int] = Counter()
        """Number of objects by deadline."""
        self._passed: dict[int, bool] = {}
        """By deadline, whether it had passed when it was last stored."""
        self._updated_at, self._next = 0.0, math.inf
        """Time of the last update, and of the next one that may change an input."""
        self._future: list[int] = []
        """Heap of the deadlines that have not passed; those that no object has go when they are the
        earliest."""

    def update(self, by_object: Table[Key, tuple[int, ...]]) -> bool:
        """Store the deadlines of a pass and the current time. Return whether any input changed."""
        now, changed = self._clock(), False
        if by_object is self._by_object and self._updated_at <= now < self._next:
            return False
        if by_object is not self._by_object:
            changed = self._take_in(by_object, now)
        if now < self._updated_at:
            # The clock was set back.
            self._future = [deadline for deadline in self._passed if deadline > now]
            heapq.heapify(self._future)
            for deadline in self._future:
                changed |= self._store(deadline, passed=False)
        self._updated_at = now
        while self._future and (self._future[0] <= now or self._future[0] not in self._passed):
            deadline = heapq.heappop(self._future)
            if deadline in self._passed:
                changed |= self._store(deadline, passed=True)
        self._next = self._future[0] if self._future else math.inf
        return changed

    def _take_in(self, by_object: Table[Key, tuple[int, ...]], now: float) -> bool:
        changed = False
        for _, old, new in self._by_object.diff(by_object):
            for deadline in new or ():
                self._references[deadline] += 1
                if deadline not in self._passed:
                    changed |= self._store(deadline, passed=deadline <= now)
                    if deadline > now:
                        heapq.heappush(self._future, deadline)
            for deadline in old or ():
                self._references[deadline] -= 1
                if not self._references[deadline]:
                    del self._references[deadline], self._passed[deadline]
                    self._put(deadline_key(deadline), None)
        self._by_object = by_object
        return changed

    def _store(self, deadline: int, *, passed: bool) -> bool:
        if self._passed.get(deadline) is passed:
            return False
        self._passed[deadline] = passed
        return self._put(deadline_key(deadline), passed)

    def next_wakeups(self) -> list[float]:
        """Return the seconds until the next update is due, as a list of at most one element."""
        if not self._future:
            return []
        return [min(max(0.0, self._future[0] - self._clock()), MAX_SLEEP_SECONDS)]
