"""Exponential back-off: the delay before the next attempt after consecutive failures.

No I/O and no clock. Callers measure and wait.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import msgspec

MAX_DOUBLINGS = 64
"""Maximum number of doublings. Keeps the power finite after days of failures."""


class BackoffPolicy(msgspec.Struct, frozen=True):
    """Delays that double with each consecutive failure. Raises ValueError if a value is invalid."""

    first: float
    """Delay in seconds after the first failure that is not retried at once, before jitter."""
    maximum: float
    """Maximum delay in seconds."""
    jitter: float = 0.0
    """Maximum share of a delay that is subtracted at random, between 0 and 1. Jitter keeps clients
    that lost a server at the same time from retrying at once.
    """
    steady: float = math.inf
    """Duration in seconds of a run. A longer run counts as a success. Default: no run does."""
    immediate: int = 0
    """Number of retries without delay after a success."""

    def __post_init__(self) -> None:
        valid = 0.0 < self.first <= self.maximum and 0.0 <= self.jitter <= 1.0
        if not valid or self.immediate < 0:
            raise ValueError(f"invalid back-off: {self}")

    def delay(self, failures: int, fraction: Callable[[], float] = random.random) -> float:
        """Return the delay in seconds after this number of consecutive failures; 0 after none.

        `fraction` returns a random number between 0 and 1.
        """
        failures -= self.immediate
        if failures <= 0:
            return 0.0
        full = min(self.maximum, self.first * 2.0 ** min(failures - 1, MAX_DOUBLINGS))
        return full * (1.0 - self.jitter * fraction()) if self.jitter else full

    def is_steady(self, seconds: float) -> bool:
        """Return whether a run of this duration counts as a success."""
        return seconds > self.steady


class Backoff:
    """Counter of consecutive failures with the delays of its policy."""

    def __init__(
        self, policy: BackoffPolicy, fraction: Callable[[], float] = random.random
    ) -> None:
        """Create a counter of 0 failures. `fraction` returns a random number between 0 and 1."""
        self.policy = policy
        self.failures = 0
        """Number of failures since the last success."""
        self._fraction = fraction

    def failed(self, min_delay: float | None = None) -> float:
        """Count a failure. Return the delay in seconds, at least `min_delay`."""
        self.failures += 1
        return max(self.policy.delay(self.failures, self._fraction), min_delay or 0.0)

    def ended(self, ran: float) -> float:
        """Count the end of a run of `ran` seconds. Return the delay in seconds before the next.

        The end is a failure. After a steady run it is the first failure.
        """
        if self.policy.is_steady(ran):
            self.succeeded()
        return self.failed()

    def succeeded(self) -> None:
        """Count a success. The next delay is the first one."""
        self.failures = 0
