"""Deadlines found in objects, such as certificate expiry. Triggers a compile pass when one passes.

The compilation reads no clock. Each deadline is an input of its own, so that only its dependents
are recomputed when it passes.
"""

from __future__ import annotations

import time
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
        self._was_passed: dict[int, bool | None] = {}
        """By deadline, whether it had passed when it was last stored; None before."""
        self._updated_at = 0.0
        self._next: int | None = None
        """The earliest deadline that has not passed."""

    def update(self, by_object: Table[Key, tuple[int, ...]]) -> bool:
        """Store the deadlines of a pass and the current time. Return whether any input changed."""
        now = self._clock()
        one_passed = self._next is not None and self._next <= now
        if by_object is self._by_object and not one_passed and self._updated_at <= now:
            return False
        if by_object is not self._by_object:
            self._replace(by_object)
        self._updated_at = now
        changed = False
        for deadline, was_passed in self._was_passed.items():
            if was_passed != (deadline <= now):
                self._was_passed[deadline] = deadline <= now
                changed |= self._put(deadline_key(deadline), deadline <= now)
        future = (deadline for deadline in self._was_passed if deadline > now)
        self._next = min(future, default=None)
        return changed

    def _replace(self, by_object: Table[Key, tuple[int, ...]]) -> None:
        desired = {deadline for deadlines in by_object.values() for deadline in deadlines}
        for removed in self._was_passed.keys() - desired:
            self._put(deadline_key(removed), None)
            del self._was_passed[removed]
        self._was_passed |= dict.fromkeys(desired - self._was_passed.keys())
        self._by_object = by_object

    def next_wakeups(self) -> list[float]:
        """Return the seconds until the next update is due, as a list of at most one element."""
        if self._next is None:
            return []
        return [min(max(0.0, self._next - self._clock()), MAX_SLEEP_SECONDS)]
