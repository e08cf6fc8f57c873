"""Bounded LRU cache of verdicts with a TTL."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from gatehouse.sidecars.reviewer.reviews import Verdict

_ENTRIES = 20_000

CHARACTERS = 32 << 20
"""Maximum number of characters of all headers and reasons, because few users with thousands of
groups would fill the memory."""

_OWN = 200
"""Overhead of an entry in characters."""


class CacheTTLs(msgspec.Struct, frozen=True):
    """TTL in seconds of granted (``good``) and denied (``bad``) verdicts."""

    good: float
    bad: float


class CacheEntry(msgspec.Struct, frozen=True):
    """A verdict with its request time and its expiry (monotonic)."""

    verdict: Verdict
    pending: float
    until: float


class TTLCache:
    """Verdicts of one kind by the digest of their request."""

    def __init__(
        self,
        entries: int = _ENTRIES,
        characters: int = CHARACTERS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.characters = 0
        self._max_entries, self._max_characters = entries, characters
        self._clock, self._wall = clock, wall
        self._entries: OrderedDict[bytes, CacheEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes, keep: CacheTTLs) -> tuple[Verdict, float] | None:
        """Return a valid verdict and its remaining time in seconds, or None.

        The TTL of the present request counts, not that of the first one.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        remaining = self.remaining(entry.verdict, entry.pending, keep)
        if remaining <= 0:
            return None
        self._entries.move_to_end(key)
        return entry.verdict, remaining

    def remaining(self, verdict: Verdict, started: float, keep: CacheTTLs) -> float:
        """Return the remaining time of a verdict in seconds."""
        good = keep.good if verdict.granted else keep.bad
        return min(good - (self._clock() - started), verdict.ends - self._wall())

    def put(self, key: bytes, verdict: Verdict, started: float, keep: CacheTTLs) -> None:
        """Store a verdict, and evict the least recently used ones above the limits."""
        self.forget(key)
        remaining = self.remaining(verdict, started, keep)
        if remaining <= 0 or verdict.weight + _OWN > self._max_characters:
            return
        self._entries[key] = CacheEntry(verdict, started, self._clock() + remaining)
        self.characters += verdict.weight + _OWN
        while len(self._entries) > self._max_entries or self.characters > self._max_characters:
            self.forget(next(iter(self._entries)))

    def sweep(self) -> None:
        """Remove expired entries."""
        now = self._clock()
        for key in [key for key, entry in self._entries.items() if entry.until <= now]:
            self.forget(key)

    def forget(self, key: bytes) -> None:
        """Remove an entry if there is one."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.characters -= entry.verdict.weight + _OWN
