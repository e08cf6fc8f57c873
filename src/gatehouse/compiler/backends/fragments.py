"""Parts: resources or files that are made together, kept until what they were made from changes.

All bookkeeping is by the identity of objects of the IR, so that a pass over thousands of them looks
at those alone that are new.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Set
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gatehouse.incremental.table import difference

T = TypeVar("T")
I = TypeVar("I", bound="Item")  # noqa: E741 - an item
W = TypeVar("W", bound="OutputSet[Any]")
I_contra = TypeVar("I_contra", contravariant=True)

Unsupported = tuple[tuple[str, str], ...]


class Item(Protocol):
    """One thing that a part has: a resource, or a file."""

    @property
    def key(self) -> Any:
        """What no other has."""


class OutputSet(Protocol[I_contra]):
    """All of them."""

    def changed(self: T, new: Iterable[I_contra], gone: Iterable[Any]) -> T:
        """Give another with ``new`` in it, and without the keys ``gone``."""


class Fragment(msgspec.Struct, Generic[I], frozen=True):
    """Items, and what of the IR they leave out."""

    resources: tuple[I, ...] = ()
    unsupported: Unsupported = ()
    uses: frozenset[str] = frozenset()
    """Clusters on which it depends, in the words of its back end."""
    seen: tuple[Any, ...] = ()
    """What it was made from."""
    needs: frozenset[Any] = frozenset()
    """What it needs of what other parts may need as well."""


class ChangeTracker(Generic[T]):
    """Objects that were there in the last pass."""

    def __init__(self) -> None:
        # What is held stays alive, so that an identity is never that of another object.
        self._held: Collection[T] = ()

    def follow(self, items: Collection[T]) -> tuple[list[T], list[T]]:
        """Give those that are new, and those that are there no more."""
        before, self._held = self._held, items
        return difference(before, items)


class Fragments(Generic[I, W]):
    """All parts of a gateway, and the whole of their items."""

    def __init__(self, empty: W) -> None:
        self._parts: dict[str, Fragment[I]] = {}
        self._findings: dict[str, Unsupported] = {}
        self._users: defaultdict[str, set[str]] = defaultdict(set)
        self.moves = 0
        """How often what parts need may have changed."""
        self._needs: Counter[Any] = Counter()
        self._turned: dict[Any, bool] = {}
        """Whether it was needed before, of what came to be needed, or is not any more."""
        self._before: dict[str, Fragment[I] | None] = {}
        """Of those that changed in this pass."""
        self._made = empty

    def get(self, key: str) -> Fragment[I] | None:
        """Give a part."""
        return self._parts.get(key)

    def keys(self, prefix: str) -> list[str]:
        """Give the keys of some parts."""
        return [key for key in self._parts if key.startswith(prefix)]

    def users(self, clusters: Iterable[str]) -> set[str]:
        """Give the keys of the parts that depend on any of the clusters."""
        return {key for name in clusters for key in self._users.get(name, ())}

    @property
    def needs(self) -> Set[Any]:
        """What any part needs."""
        return self._needs.keys()

    def put(self, key: str, part: Fragment[I]) -> None:
        """Put a part in the place of another, if there is one."""
        self.drop(key)
        self._parts[key] = part
        if part.unsupported:
            self._findings[key] = part.unsupported
        for name in part.uses:
            self._users[name].add(key)
        for each in part.needs:
            self._turned.setdefault(each, each in self._needs)
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
            self._turned.setdefault(each, True)
            self._needs[each] -= 1
            if not self._needs[each]:
                del self._needs[each]

    def changed(self) -> tuple[list[Any], list[Any]]:
        """Give what any part needs now and none did when this was asked last, and the reverse."""
        turned, self._turned = self._turned, {}
        moved = [each for each, before in turned.items() if before != (each in self._needs)]
        return [each for each in moved if each in self._needs], [
            each for each in moved if each not in self._needs
        ]

    def finish(self) -> tuple[W, Unsupported]:
        """End a pass: give all items, and all that they leave out."""
        old = {each.key: each for part in self._before.values() if part for each in part.resources}
        now = (self._parts.get(key) for key in self._before)
        new = {each.key: each for part in now if part is not None for each in part.resources}
        self._before = {}
        changed = [each for key, each in new.items() if old.get(key) != each]
        if changed or old.keys() - new.keys():
            self._made = self._made.changed(changed, old.keys() - new.keys())
        found = [each for key in sorted(self._findings) for each in self._findings[key]]
        return self._made, tuple(found)
