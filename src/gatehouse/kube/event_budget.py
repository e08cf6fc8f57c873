"""Limit of the Events of each namespace, so that one namespace cannot hide Events of another."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

BURST, PER_SECOND = 100, 1.0
"""Maximum number of writes of Events of a namespace at once, and how many more each second allows.

A Service that thousands of routes use may turn all of them bad. Their conditions have the same
messages.
"""

MAX_NAMESPACES = 1024
"""Maximum number of namespaces with a bucket. A namespace without one starts with a full bucket."""


class _Bucket(msgspec.Struct):
    filled: float
    """Time of the last refill."""
    tokens: float = BURST


class EventBudget:
    """One token bucket of Events for each namespace."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        """The least recently used bucket first: it is the one that is full again."""

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._buckets)

    def take(self, namespace: str) -> bool:
        """Take a token of a namespace. Return whether an Event may be written."""
        now = self._clock()
        bucket = self._buckets.setdefault(namespace, _Bucket(now))
        self._buckets.move_to_end(namespace)
        if len(self._buckets) > MAX_NAMESPACES:
            self._buckets.popitem(last=False)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.filled) * PER_SECOND)
        bucket.filled = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
