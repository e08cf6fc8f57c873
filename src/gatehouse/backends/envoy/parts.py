"""Parts: resources that are made together, kept until what they were made from changes.

All bookkeeping is by the identity of objects of the IR, so that a pass over thousands of them looks
at those alone that are new.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Set
from typing import Any, Generic, TypeVar

import msgspec

from gatehouse.table import difference
from gatehouse.xds.resources import Resource, Resources

T = TypeVar("T")

Unsupported = tuple[tuple[str, str], ...]


class Part(msgspec.Struct, frozen=True):
    """Resources, and what of the IR they leave out."""

    resources: tuple[Resource, ...] = ()
    unsupported: Unsupported = ()
    uses: frozenset[str] = frozenset()
    """Clusters on whose look it depends."""
    seen: tuple[Any, ...] = ()
    """What it was made from."""
    needs: frozenset[Any] = frozenset()
    """What it needs of what other parts may need as well."""


class Followed(Generic[T]):
    """Objects that were there in the last pass."""

    def __init__(self) -> None:
        # What is held stays alive, so that an identity is never that of another object.
        self._held: Collection[T] = ()

    def follow(self, items: Collection[T]) -> tuple[list[T], list[T]]:
        """Give those that are new, and those that are there no more."""
        before, self._held = self._held, items
        return difference(before, items)


class Parts:
    """All parts of a gateway, and the set of their resources."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self._findings: dict[str, Unsupported] = {}
        self._users: defaultdict[str, set[str]] = defaultdict(set)
        self.moves = 0
        """How often what parts need may have changed."""
        self._needs: Counter[Any] = Counter()
        self._before: dict[str, Part | None] = {}
        """Of those that changed in this pass."""
        self._made = Resources()

    def get(self, key: str) -> Part | None:
        """Give a part."""
        return self._parts.get(key)

    def keys(self, prefix: str) -> list[str]:
        """Give the keys of some parts."""
        return [key for key in self._parts if key.startswith(prefix)]

    def users(self, clusters: Iterable[str]) -> set[str]:
        """Give the keys of the parts that depend on the look of any of the clusters."""
        return {key for name in clusters for key in self._users.get(name, ())}

    @property
    def needs(self) -> Set[Any]:
        """What any part needs."""
        return self._needs.keys()

    def put(self, key: str, part: Part) -> None:
        """Put a part in the place of another, if there is one."""
        self.drop(key)
        self._parts[key] = part
        if part.unsupported:
            self._findings[key] = part.unsupported
        for name in part.uses:
            self._users[name].add(key)
        self._needs.update(part.needs)
        self.moves += bool(part.needs)

    def drop(self, key: str) -> None:
        """Take a part away, if it is there."""
        known = self._parts.pop(key, None)
        self._before.setdefault(key, known)
        self._findings.pop(key, None)
        for name in known.uses if known is not None else ():
            self._users[name].discard(key)
            if not self._users[name]:
                del self._users[name]
        needs = known.needs if known is not None else frozenset()
        self.moves += bool(needs)
        for each in needs:
            self._needs[each] -= 1
            if not self._needs[each]:
                del self._needs[each]

    def finish(self) -> tuple[Resources, Unsupported]:
        """End a pass: give all resources, and all that they leave out."""
        old = {each.key: each for part in self._before.values() if part for each in part.resources}
        now = (self._parts.get(key) for key in self._before)
        new = {each.key: each for part in now if part is not None for each in part.resources}
        self._before = {}
        changed = [each for key, each in new.items() if old.get(key) != each]
        if changed or old.keys() - new.keys():
            self._made = self._made.changed(changed, old.keys() - new.keys())
        found = [each for key in sorted(self._findings) for each in self._findings[key]]
        return self._made, tuple(found)
