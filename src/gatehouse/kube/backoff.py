"""How long to wait before the next attempt. Pure but for the injected randomness."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Waits that double from ``first`` to ``last`` seconds, each shortened by up to a half.

    The randomness keeps a fleet that lost its API server at one moment from coming back at one.
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

    def next_delay(self, at_least: float | None = None) -> float:
        """Count a failure; give the seconds to wait, no less than what the server asked for."""
        # 2**16 seconds is beyond any cap; without this, days of failures overflow a float.
        full = min(self._last, self._first * 2.0 ** min(self.failures, 16))
        self.failures += 1
        return max(full * (1.0 - self._fraction() / 2), at_least or 0.0)

    def reset(self) -> None:
        """Count a success: the next wait is the first one again."""
        self.failures = 0
