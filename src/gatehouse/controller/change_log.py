"""Order of changes of objects, so that a rejection can be compared with them. No I/O."""

from __future__ import annotations

from gatehouse.incremental.query import Key

MAX_LOGGED_CHANGES = 10_000
"""Maximum number of remembered objects. A rejection is about one of the last few versions."""


class ChangeLog:
    """The last change of each object, shared by the quarantines of all Gateways.

    To record a change costs the same for any number of Gateways.
    """

    def __init__(self) -> None:
        self.now = 0
        """Number of changes so far."""
        self._last: dict[Key, int] = {}
        """The newest last."""

    def record(self, key: Key) -> None:
        """Record a change or deletion of an object."""
        self.now += 1
        self._last.pop(key, None)
        self._last[key] = self.now
        if len(self._last) > MAX_LOGGED_CHANGES:
            del self._last[next(iter(self._last))]

    def changed_since(self, key: Key, then: int) -> bool:
        """Return whether an object changed after `then`, a value of `now`."""
        return self.last(key) > then

    def last(self, key: Key) -> int:
        """Return the number of the last change of an object; 0 if none is remembered."""
        return self._last.get(key, 0)
