"""Limit of the Events that changes of many objects at once cause."""

from __future__ import annotations

import time
from collections.abc import Callable

BURST, PER_SECOND = 100, 1.0
"""Maximum number of Events at once, and how many more are recorded in each second.

A Service that thousands of routes use may turn all of them bad. Their conditions have the same
messages.
"""


class EventBudget:
    """Token bucket of Events."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._filled, self._tokens = clock(), float(BURST)

    def take(self) -> bool:
        """Take a token. Return whether an Event may be recorded."""
        now = self._clock()
        self._tokens = min(BURST, self._tokens + (now - self._filled) * PER_SECOND)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
