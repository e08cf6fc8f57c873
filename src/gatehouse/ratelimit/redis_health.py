"""Availability of Redis, and when to probe it again. No I/O except for the given clock."""

from __future__ import annotations

from collections.abc import Callable

from kube_base.runtime.backoff import Backoff, BackoffPolicy

PROBES = BackoffPolicy(first=0.1, maximum=5.0, steady=10.0)
"""Back-off between probes."""


class RedisHealth:
    """State of Redis: available until it fails, and again from the first success."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.since: float | None = None
        """Start of the outage; None while Redis is available."""
        self._clock = clock
        self._backoff, self._pause = Backoff(PROBES), 0.0
        self._recovered_at = clock()

    def failed(self) -> bool:
        """Record a failure. Return whether it starts an outage."""
        now = self._clock()
        if self.since is not None:
            self._pause = self._backoff.failed()
            return False
        self._pause = self._backoff.ended(now - self._recovered_at)
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
