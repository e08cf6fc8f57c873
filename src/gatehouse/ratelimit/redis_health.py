"""Availability of Redis, and when to probe it again. No I/O except for the given clock."""

from __future__ import annotations

from collections.abc import Callable

PAUSE_FIRST, PAUSE_MAX = 0.1, 5.0
"""Delay in seconds between probes, doubled each time."""

RECOVERY_SECONDS = 10.0
"""Time in seconds without a failure after which the probe delay is reset."""


class RedisHealth:
    """State of Redis: available until it fails, and again from the first success."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.since: float | None = None
        """Start of the outage; None while Redis is available."""
        self._clock = clock
        self._pause = 0.0
        self._recovered_at = clock()

    def failed(self) -> bool:
        """Record a failure. Return whether it starts an outage."""
        now = self._clock()
        if self.since is not None:
            self._pause = min(2 * self._pause, PAUSE_MAX)
            return False
        steady = now - self._recovered_at > RECOVERY_SECONDS
        self._pause = PAUSE_FIRST if steady or not self._pause else min(2 * self._pause, PAUSE_MAX)
        self.since = now
        return True

    def answered(self) -> float | None:
        """Record a success. Return the duration of the outage in seconds, or None if there was
        none."""
        since, self.since = self.since, None
        if since is None:
            return None
        self._recovered_at = self._clock()
        return self._recovered_at - since

    @property
    def pause(self) -> float:
        """Delay in seconds before the next probe."""
        return self._pause
