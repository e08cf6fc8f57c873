"""Exponential back-off with jitter. No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Delays that double from ``first`` to ``last`` seconds, each reduced by up to a half.

    The jitter keeps clients that lost their API server at the same time from retrying at once.
    """

    def __init__(
        self,
        first: float = 1.0,
        last: float = 30.0,
        fraction: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._last = last
        self._fraction = fraction
        self.failures = 0
        """Failures since the last success."""

    def next_delay(self, min_delay: float | None = None) -> float:
        """Count a failure. Return the delay in seconds, at least ``min_delay`` of the server."""
        # 2**16 seconds is beyond any cap; without this, days of failures overflow a float.
        full = min(self._last, self._first * 2.0 ** min(self.failures, 16))
        self.failures += 1
        return max(full * (1.0 - self._fraction() / 2), min_delay or 0.0)

    def reset(self) -> None:
        """Count a success: the next delay is the first one again."""
        self.failures = 0
