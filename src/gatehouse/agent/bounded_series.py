"""Values by key, for a limited number of keys. All other keys share one value."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from gatehouse.agent.request_families import (
    IDLE_KEY_SECONDS,
    MAX_KEYS,
    MAX_KEYS_OF_NAMESPACE,
    OTHER,
)

_SEARCH_SECONDS = 60.0
"""Minimum time in seconds between two searches for idle keys."""


class Series(Protocol):
    """The series of one key."""

    used: float
    """Time of the last request, of the clock."""


SeriesT = TypeVar("SeriesT", bound=Series)


class BoundedSeries(Generic[SeriesT]):
    """Series of keys such as ``namespace/name``, created by `create` from the label value.

    `namespace`: index of the namespace among the parts of a key.
    """

    def __init__(
        self,
        create: Callable[[str], SeriesT],
        namespace: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._create, self._namespace, self._clock = create, namespace, clock
        # Requests without a key always have series of their own.
        self._series: dict[bytes, SeriesT] = {b"": create("")}
        self._other: SeriesT | None = None
        self._owners: Counter[bytes] = Counter()
        self._searched = float("-inf")

    def get(self, key: bytes) -> SeriesT:
        """Return the series of a key, or those that it shares with other keys."""
        series = self._series.get(key) or self._add(key)
        series.used = self._clock()
        return series

    def __iter__(self) -> Iterator[SeriesT]:
        """Yield the series of all keys that had requests."""
        yield from self._series.values()
        if self._other is not None:
            yield self._other

    def _add(self, key: bytes) -> SeriesT:
        owner = self._owner(key)
        if self._is_full(owner):
            self._evict()
        if self._is_full(owner):
            self._other = self._other or self._create(OTHER)
            return self._other
        self._owners[owner] += 1
        series = self._series[key] = self._create(key.decode(errors="replace"))
        return series

    def _is_full(self, owner: bytes) -> bool:
        return len(self._series) > MAX_KEYS or self._owners[owner] >= MAX_KEYS_OF_NAMESPACE

    def _evict(self) -> None:
        """Remove idle keys, for example of deleted routes."""
        now = self._clock()
        if now - self._searched < _SEARCH_SECONDS:
            return
        self._searched = now
        for key in [key for key, series in self._series.items() if key]:
            if now - self._series[key].used > IDLE_KEY_SECONDS:
                del self._series[key]
                self._owners[self._owner(key)] -= 1

    def _owner(self, key: bytes) -> bytes:
        parts = key.split(b"/", self._namespace + 1)
        return parts[self._namespace] if len(parts) > self._namespace else b""
