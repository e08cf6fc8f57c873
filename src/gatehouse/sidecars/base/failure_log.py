"""What is said of what failed: each reason once, then at most once a minute."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

REPEAT_SECONDS = 60.0

MAX_MESSAGES = 1000
"""Reasons remembered; peers have a hand in their texts."""


def write(line: str) -> None:
    """Write a line to the log, in the form of NGINX's, which the agent reads as well."""
    now = time.strftime("%Y/%m/%d %H:%M:%S")
    sys.stderr.write(f"{now} [error] {os.getpid()}#0: {line}\n")
    sys.stderr.flush()


class FailureLog:
    """Says why others did not do what was asked of them."""

    def __init__(
        self, say: Callable[[str], None] = write, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def record(self, subject: str, reason: str) -> None:
        """Take note of a failure, and say it if it is new or was not said for a minute."""
        key, now = (subject, reason), self._clock()
        last, untold = self._said.get(key, (0.0, 0))
        if key in self._said and now - last < REPEAT_SECONDS:
            self._said[key] = (last, untold + 1)
            return
        if len(self._said) >= MAX_MESSAGES:
            self._said.clear()
        self._said[key] = (now, 0)
        more = f" ({untold} more since it was last said)" if untold else ""
        self._say(f"{subject}: {reason}{more}")
