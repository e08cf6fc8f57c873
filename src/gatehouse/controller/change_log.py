"""Order of changes of objects, so that a rejection can be compared with them. No I/O."""

from __future__ import annotations

from collections import defaultdict

from gatehouse.incremental.query import Key

MAX_LOGGED_CHANGES = 10_000
"""Maximum number of remembered objects of a kind. Rejections are about one of the last versions."""


class ChangeLog:
    """The last change of each object, shared by the quarantines of all Gateways.

    To record a change costs the same for any number of Gateways.
    """

    def __init__(self) -> None:
        self.now = 0
        """Number of changes so far."""
        self._last: defaultdict[str, dict[Key, int]] = defaultdict(dict)
        """By kind, the newest last."""

    def record(self, key: Key) -> None:
        """Record a change or deletion of an object."""
        self.now += 1
        last = self._last[key[0]]
        last.pop(key, None)
        last[key] = self.now
        if len(last) > MAX_LOGGED_CHANGES:
            del last[next(iter(last))]

    def changed_since(self, key: Key, then: int) -> bool:
        """Return whether an object changed after `then`, a value of `now`."""
        return self.last(key) > then

    def last(self, key: Key) -> int:
        """Return the number of the last change of an object; 0 if none is remembered."""
        return self._last[key[0]].get(key, 0)
