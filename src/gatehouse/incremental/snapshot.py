"""The objects that a compile reads, and the index buckets beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gatehouse.incremental.table import Table

Key = tuple[str, ...]
"""``(kind, namespace, name)`` of an object (namespace ``""`` for cluster-scoped kinds), or the key
of an index bucket: ``("@<index>", …)``."""

Index = Callable[[Any], Iterable[Key]]
"""The buckets an object belongs to."""


_EMPTY: Table[Key, Key] = Table()


class Snapshot:
    """The objects as last seen, by key, with index buckets kept beside them.

    Values are immutable. A put that equals what is there changes nothing, which is how updates
    that matter to nobody (a status write of our own) stop at the door.
    """

    def __init__(self, indexes: Mapping[str, Iterable[Index]] | None = None) -> None:
        self._objects: dict[Key, Any] = {}
        self._buckets: dict[Key, Table[Key, Key]] = {}
        self._moved: dict[Key, dict[Key, bool]] = {}
        """Keys that came into a bucket (True) or left it since it was last read."""
        self._indexes = {kind: tuple(functions) for kind, functions in (indexes or {}).items()}

    def get(self, key: Key) -> Any:
        """Give the object at ``key`` (None if absent), or an index bucket: a table of keys."""
        if key[0].startswith("@"):
            return self._bucket(key)
        return self._objects.get(key)

    def _bucket(self, key: Key) -> Table[Key, Key]:
        # Once for all changes since the last pass: a thousand routes are one step, not one each.
        moved = self._moved.pop(key, None)
        if moved is None:
            return self._buckets.get(key, _EMPTY)
        there = {each: each for each in moved if moved[each]}
        made = self._buckets.pop(key, _EMPTY).updated(there, moved.keys() - there.keys())
        if made:
            self._buckets[key] = made
        return made

    def keys(self, kind: str) -> list[Key]:
        """List the keys of all objects of ``kind``, sorted."""
        return sorted(key for key in self._objects if key[0] == kind)

    def objects(self) -> dict[Key, Any]:
        """Give a shallow copy of all objects."""
        return dict(self._objects)

    def apply(self, changes: Mapping[Key, Any]) -> frozenset[Key]:
        """Put (or, for None, delete) objects; return the keys and buckets whose value changed."""
        touched: set[Key] = set()
        for key, new in changes.items():
            old = self._objects.get(key)
            if new is old or new == old:
                continue
            touched.add(key)
            before, after = self._memberships(key[0], old), self._memberships(key[0], new)
            for bucket in before ^ after:
                self._moved.setdefault(bucket, {})[key] = bucket in after
                touched.add(bucket)
            if new is None:
                del self._objects[key]
            else:
                self._objects[key] = new
        return frozenset(touched)

    def _memberships(self, kind: str, value: Any) -> set[Key]:
        if value is None:
            return set()
        return {bucket for index in self._indexes.get(kind, ()) for bucket in index(value)}
