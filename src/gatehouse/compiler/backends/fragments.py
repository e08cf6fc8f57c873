"""Fragments: resources or files that are generated together and cached until their inputs change.

Changes are found by the identity of IR objects, so that a pass over thousands of objects processes
only the new ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Set
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.incremental.table import difference

T = TypeVar("T")
I = TypeVar("I", bound="Item")  # noqa: E741 - short for item
W = TypeVar("W", bound="OutputSet[Any]")
I_contra = TypeVar("I_contra", contravariant=True)


class Item(Protocol):
    """An item of a fragment: a resource or a file."""

    @property
    def key(self) -> Any:
        """Key of the item, unique in the output set."""


class OutputSet(Protocol[I_contra]):
    """All items of a gateway: a resource set or a file set."""

    def changed(self: T, new: Iterable[I_contra], gone: Iterable[Any]) -> T:
        """Return a copy with the items ``new`` and without the keys ``gone``."""


class Fragment(msgspec.Struct, Generic[I], frozen=True):
    """Items generated together, with their findings and dependencies."""

    resources: tuple[I, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    uses: frozenset[str] = frozenset()
    """Dependencies on clusters, as keys of the back end."""
    inputs: tuple[Any, ...] = ()
    """Inputs that the items were generated from."""
    needs: frozenset[Any] = frozenset()
    """Items outside of this fragment that it needs; other fragments may need them too."""


class ChangeTracker(Generic[T]):
    """Finds changes of a collection between two passes, by identity."""

    def __init__(self) -> None:
        # Keeps the objects alive, so that an identity is never reused by another object.
        self._objects: Collection[T] = ()

    def follow(self, items: Collection[T]) -> tuple[list[T], list[T]]:
        """Return the objects that are new and those that are gone since the last call."""
        before, self._objects = self._objects, items
        return difference(before, items)


class Fragments(Generic[I, W]):
    """All fragments of a gateway, and the output set of their items."""

    def __init__(self, empty: W) -> None:
        self._fragments: dict[str, Fragment[I]] = {}
        self._findings: dict[str, tuple[Unsupported, ...]] = {}
        self._users: defaultdict[str, set[str]] = defaultdict(set)
        self.moves = 0
        """Number of calls that may have changed ``needs``."""
        self._needs: Counter[Any] = Counter()
        self._previous_needs: dict[Any, bool] = {}
        """Each need touched since the last ``changed_needs``: whether it was needed before."""
        self._before: dict[str, Fragment[I] | None] = {}
        """Previous version of each fragment that changed in this pass."""
        self._output = empty

    def get(self, key: str) -> Fragment[I] | None:
        """Return a fragment, or None."""
        return self._fragments.get(key)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with ``prefix``."""
        return [key for key in self._fragments if key.startswith(prefix)]

    def users(self, clusters: Iterable[str]) -> set[str]:
        """Return the keys of the fragments that depend on any of ``clusters``."""
        return {key for name in clusters for key in self._users.get(name, ())}

    @property
    def needs(self) -> Set[Any]:
        """Needs of all fragments."""
        return self._needs.keys()

    def put(self, key: str, fragment: Fragment[I]) -> None:
        """Add a fragment or replace it."""
        self.drop(key)
        self._fragments[key] = fragment
        if fragment.unsupported:
            self._findings[key] = fragment.unsupported
        for name in fragment.uses:
            self._users[name].add(key)
        for need in fragment.needs:
            self._previous_needs.setdefault(need, need in self._needs)
        self._needs.update(fragment.needs)
        self.moves += bool(fragment.needs)

    def drop(self, key: str) -> None:
        """Remove a fragment, if present."""
        known = self._fragments.pop(key, None)
        self._before.setdefault(key, known)
        self._findings.pop(key, None)
        for name in known.uses if known is not None else ():
            self._users[name].discard(key)
            if not self._users[name]:
                del self._users[name]
        needs = known.needs if known is not None else frozenset()
        self.moves += bool(needs)
        for need in needs:
            self._previous_needs.setdefault(need, True)
            self._needs[need] -= 1
            if not self._needs[need]:
                del self._needs[need]

    def changed_needs(self) -> tuple[list[Any], list[Any]]:
        """Return the needs that were added and those that were removed since the last call."""
        previous, self._previous_needs = self._previous_needs, {}
        changed = [need for need, before in previous.items() if before != (need in self._needs)]
        return [need for need in changed if need in self._needs], [
            need for need in changed if need not in self._needs
        ]

    def finish(self) -> tuple[W, tuple[Unsupported, ...]]:
        """End the pass. Return the output set and all findings."""
        old = {
            item.key: item
            for fragment in self._before.values()
            if fragment
            for item in fragment.resources
        }
        now = (self._fragments.get(key) for key in self._before)
        new = {
            item.key: item
            for fragment in now
            if fragment is not None
            for item in fragment.resources
        }
        self._before = {}
        changed = [item for key, item in new.items() if old.get(key) != item]
        if changed or old.keys() - new.keys():
            self._output = self._output.changed(changed, old.keys() - new.keys())
        findings = [item for key in sorted(self._findings) for item in self._findings[key]]
        return self._output, tuple(findings)
