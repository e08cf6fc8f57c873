"""The newest resource set with a log of recent changes, so that clients need no full comparison."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set

import msgspec

from gatehouse.dataplane.xds.resources import ResourceKey, ResourceSet

REMEMBERED_CHANGES = 64
"""Number of publications in the change log. Clients further behind compare complete sets."""

WILDCARD = "*"
"""In place of a name: all resources of the type."""


class _Change(msgspec.Struct, frozen=True):
    number: int
    keys: frozenset[ResourceKey]


class SnapshotCache:
    """Desired resources of all clients of one kind. Publications are numbered from 1."""

    def __init__(self, *, complete: bool = True) -> None:
        """Create an empty cache.

        ``complete``: a resource that is not in the cache does not exist. A relay may only not know
        it yet, so it sets this to False and marks absent keys one by one (see :meth:`mark_absent`).
        """
        self.current = ResourceSet()
        self.trial = False
        """True if the newest set is a trial."""
        self.newest_served = self.current
        """The newest set that is no trial."""
        self.number = 0
        self.open = False
        """True while something is published. If False, as after :meth:`withdraw`, nothing is
        sent."""
        self._complete = complete
        self._absent: set[ResourceKey] = set()
        self._changes: deque[_Change] = deque(maxlen=REMEMBERED_CHANGES)

    def publish(self, resources: ResourceSet) -> bool:
        """Make ``resources`` the newest set. Return False if it already was."""
        keys = self.current.differing(resources)
        if not keys and self.open:
            return False
        self._step(resources, keys)
        return True

    def apply_changes(self, resources: ResourceSet, changed: Iterable[ResourceKey]) -> None:
        """Publish a set like :meth:`publish`, for callers that know the changed keys."""
        self._step(resources, changed)

    def withdraw(self) -> None:
        """Stop sending: clients keep what they have."""
        self.open = False

    def mark_absent(self, keys: Iterable[ResourceKey]) -> None:
        """Record that resources missing under ``keys`` do not exist.

        For the name :data:`WILDCARD`, record that all resources of the type are known.
        """
        new = {key for key in keys if not self.is_absent(*key)}
        if new:
            self._absent |= new
            self._step(self.current, new)

    def unmark_absent(self, keys: Iterable[ResourceKey]) -> None:
        """Undo :meth:`mark_absent`."""
        self._absent -= set(keys)

    def is_absent(self, type_url: str, name: str) -> bool:
        """Return whether a resource that is missing under that name does not exist."""
        return self.open if self._complete else (type_url, name) in self._absent

    def changes_since(self, number: int) -> Set[ResourceKey] | None:
        """Return the keys changed since publication ``number``, or None if it is not in the log."""
        if not self._changes or self._changes[0].number > number + 1:
            return None
        keys: set[ResourceKey] = set()
        for change in reversed(self._changes):
            if change.number <= number:
                break
            keys |= change.keys
        return keys

    def _step(self, resources: ResourceSet, keys: Iterable[ResourceKey]) -> None:
        self.current, self.trial = resources, resources.trial
        if not self.trial:
            self.newest_served = resources
        self.number += 1
        self.open = True
        self._changes.append(_Change(self.number, frozenset(keys)))
