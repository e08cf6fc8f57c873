"""Whether Redis is there, and when it is looked for again. Pure, but for the clock it is given."""

from __future__ import annotations

from collections.abc import Callable

PAUSE_FIRST, PAUSE_MAX = 0.1, 5.0
"""Seconds between two looks; doubled each time."""

RECOVERY_SECONDS = 10.0
"""After so long without a failure the next one is the first."""


class RedisHealth:
    """What is known of a Redis: there, until it fails, and from when it was seen again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.since: float | None = None
        """When it went away; None while it is there."""
        self._clock = clock
        self._pause = 0.0
        self._back = clock()

    def failed(self) -> bool:
        """Take note of a failure; gives whether it is the first of an outage."""
        now = self._clock()
        if self.since is not None:
            self._pause = min(2 * self._pause, PAUSE_MAX)
            return False
        steady = now - self._back > RECOVERY_SECONDS
        self._pause = PAUSE_FIRST if steady or not self._pause else min(2 * self._pause, PAUSE_MAX)
        self.since = now
        return True

    def answered(self) -> float | None:
        """Take note that it is there; gives how long it was away, None if it was not."""
        since, self.since = self.since, None
        if since is None:
            return None
        self._back = self._clock()
        return self._back - since

    @property
    def pause(self) -> float:
        """Seconds to wait before it is looked for again."""
        return self._pause
