"""The newest resources, and what changed lately, so that nobody compares everything for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set

import msgspec

from gatehouse.dataplane.xds.resources import Key, ResourceSet

REMEMBERED_CHANGES = 64
"""Publications of which it is remembered what they changed; whoever is further behind compares."""

WILDCARD = "*"
"""In place of a name: whatever there is of the type."""


class _Change(msgspec.Struct, frozen=True):
    number: int
    keys: frozenset[Key]


class SnapshotCache:
    """What every client of one kind is to have. Numbered from 1."""

    def __init__(self, *, complete: bool = True) -> None:
        """Begin with nothing.

        ``complete``: what is not here does not exist. A relay, which may only not know of it yet,
        says so key by key (see :meth:`learn`).
        """
        self.current = ResourceSet()
        self.number = 0
        self.open = False
        """Whether anything is published; else, also after :meth:`withdraw`, nothing is said."""
        self._complete = complete
        self._known: set[Key] = set()
        self._changes: deque[_Change] = deque(maxlen=REMEMBERED_CHANGES)

    def publish(self, resources: ResourceSet) -> bool:
        """Make ``resources`` the newest; returns False if they were already."""
        keys = self.current.differing(resources)
        if not keys and self.open:
            return False
        self._step(resources, keys)
        return True

    def apply_changes(self, resources: ResourceSet, changed: Iterable[Key]) -> None:
        """Like :meth:`publish`, by somebody who knows what changed."""
        self._step(resources, changed)

    def withdraw(self) -> None:
        """Say nothing more: clients keep what they have."""
        self.open = False

    def mark_absent(self, keys: Iterable[Key]) -> None:
        """Take note that what is not here under ``keys`` does not exist.

        Of :data:`EVERYTHING` of a type: that who asks for it has heard of all there is.
        """
        new = {key for key in keys if not self.is_absent(*key)}
        if new:
            self._known |= new
            self._step(self.current, new)

    def unmark_absent(self, keys: Iterable[Key]) -> None:
        """Take back what :meth:`learn` was told."""
        self._known -= set(keys)

    def is_absent(self, type_url: str, name: str) -> bool:
        """Whether what is not here under that name does not exist."""
        return self.open if self._complete else (type_url, name) in self._known

    def changes_since(self, number: int) -> Set[Key] | None:
        """Give what changed after publication ``number``; None: that is too long ago to say."""
        if not self._changes or self._changes[0].number > number + 1:
            return None
        keys: set[Key] = set()
        for change in reversed(self._changes):
            if change.number <= number:
                break
            keys |= change.keys
        return keys

    def _step(self, resources: ResourceSet, keys: Iterable[Key]) -> None:
        self.current = resources
        self.number += 1
        self.open = True
        self._changes.append(_Change(self.number, frozenset(keys)))
