"""Moments that objects speak of, such as the end of a certificate: which of them have passed.

The compilation reads no clock; each moment is an input of its own, so that one that passes costs
what depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gatehouse.compiler.frontends.upstream_cluster import passed
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table

MAX_SLEEP_SECONDS = 60.0
"""Seconds after which the clock is looked at again: it may be set, and it runs on while a machine
sleeps."""


class Deadlines:
    """Tells the compilation of those that the last pass named."""

    def __init__(
        self, put: Callable[[Key, Any], bool], clock: Callable[[], float] = time.time
    ) -> None:
        """``put``: takes in an input, and gives whether it changed; ``clock``: since 1970."""
        self._put, self._clock = put, clock
        self._named: Table[Key, tuple[int, ...]] = Table()
        self._known: dict[int, bool | None] = {}
        """Of each moment, whether it had passed when that was told last."""
        self._looked = 0.0
        self._next: int | None = None
        """The first one that has not passed."""

    def update(self, named: Table[Key, tuple[int, ...]]) -> bool:
        """Take in which moments matter, and the time; gives whether any input changed."""
        now = self._clock()
        passing = self._next is not None and self._next <= now
        if named is self._named and not passing and self._looked <= now:
            return False
        if named is not self._named:
            self._name(named)
        self._looked = now
        changed = False
        for moment, before in self._known.items():
            if before != (moment <= now):
                self._known[moment] = moment <= now
                changed |= self._put(passed(moment), moment <= now)
        self._next = min((each for each in self._known if each > now), default=None)
        return changed

    def _name(self, named: Table[Key, tuple[int, ...]]) -> None:
        wanted = {moment for each in named.values() for moment in each}
        for gone in self._known.keys() - wanted:
            self._put(passed(gone), None)
            del self._known[gone]
        self._known |= dict.fromkeys(wanted - self._known.keys())
        self._named = named

    def next_wakeups(self) -> list[float]:
        """Give after how many seconds to look again; nothing if no moment is to come."""
        if self._next is None:
            return []
        return [min(max(0.0, self._next - self._clock()), MAX_SLEEP_SECONDS)]
