"""Answers that are kept: for a while, the latest used, within bounds."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from gatehouse.sidecars.reviewer.reviews import Verdict

ENTRIES = 20_000

CHARACTERS = 32 << 20
"""Of all headers and reasons together: a few users with groups by the thousand must not add up."""

_OWN = 200
"""Characters that an entry counts for itself."""


class CacheTTLs(msgspec.Struct, frozen=True):
    """For how many seconds each kind of answer is good."""

    good: float
    bad: float


class CacheEntry(msgspec.Struct, frozen=True):
    """An answer, and the moments at which it was asked for and is to be dropped (monotonic)."""

    verdict: Verdict
    pending: float
    until: float


class TTLCache:
    """Answers of one kind by digests of their questions."""

    def __init__(
        self,
        entries: int = ENTRIES,
        characters: int = CHARACTERS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.characters = 0
        self._most_entries, self._most_characters = entries, characters
        self._clock, self._wall = clock, wall
        self._kept: OrderedDict[bytes, CacheEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, keep: CacheTTLs) -> tuple[Verdict, float] | None:
        """Give an answer that is still good, and for how many seconds; None if there is none.

        How long it is good is up to who asks now, not to who asked first.
        """
        kept = self._kept.get(key)
        if kept is None:
            return None
        left = self.left(kept.verdict, kept.pending, keep)
        if left <= 0:
            return None
        self._kept.move_to_end(key)
        return kept.verdict, left

    def left(self, verdict: Verdict, asked: float, keep: CacheTTLs) -> float:
        """Give for how many seconds an answer is still good."""
        good = keep.good if verdict.granted else keep.bad
        return min(good - (self._clock() - asked), verdict.ends - self._wall())

    def put(self, key: bytes, verdict: Verdict, asked: float, keep: CacheTTLs) -> None:
        """Keep an answer, and drop what was not used for longest if that is too much."""
        self.forget(key)
        left = self.left(verdict, asked, keep)
        if left <= 0 or verdict.weight + _OWN > self._most_characters:
            return
        self._kept[key] = CacheEntry(verdict, asked, self._clock() + left)
        self.characters += verdict.weight + _OWN
        while len(self._kept) > self._most_entries or self.characters > self._most_characters:
            self.forget(next(iter(self._kept)))

    def sweep(self) -> None:
        """Drop what is good no more."""
        now = self._clock()
        for key in [key for key, kept in self._kept.items() if kept.until <= now]:
            self.forget(key)

    def forget(self, key: bytes) -> None:
        """Drop an answer, if there is one."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.characters -= kept.verdict.weight + _OWN
