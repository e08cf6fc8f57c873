"""Input objects of a compile pass, and the index buckets over them."""

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
    """The objects as last seen, by key, with up-to-date index buckets.

    Values are immutable. Storing an equal value changes nothing, so irrelevant updates (such as the
    controller's own status writes) do not cause a pass.
    """

    def __init__(self, indexes: Mapping[str, Iterable[Index]] | None = None) -> None:
        self._objects: dict[Key, Any] = {}
        self._buckets: dict[Key, Table[Key, Key]] = {}
        self._pending_moves: dict[Key, dict[Key, bool]] = {}
        """By bucket, the keys added (True) or removed (False) since it was last read."""
        self._indexes = {kind: tuple(functions) for kind, functions in (indexes or {}).items()}

    def get(self, key: Key) -> Any:
        """Return the object at ``key`` (None if absent), or an index bucket as a table of keys."""
        if key[0].startswith("@"):
            return self._bucket(key)
        return self._objects.get(key)

    def _bucket(self, key: Key) -> Table[Key, Key]:
        # All changes since the last read are applied at once: a thousand routes cost one update.
        moves = self._pending_moves.pop(key, None)
        if moves is None:
            return self._buckets.get(key, _EMPTY)
        added = {member: member for member in moves if moves[member]}
        bucket = self._buckets.pop(key, _EMPTY).updated(added, moves.keys() - added.keys())
        if bucket:
            self._buckets[key] = bucket
        return bucket

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._objects)

    def keys(self, kind: str) -> list[Key]:
        """List the keys of all objects of ``kind``, sorted."""
        return sorted(key for key in self._objects if key[0] == kind)

    def objects(self) -> dict[Key, Any]:
        """Return a shallow copy of all objects."""
        return dict(self._objects)

    def apply(self, changes: Mapping[Key, Any]) -> frozenset[Key]:
        """Store objects, or delete them for None. Return the keys and buckets that changed."""
        touched: set[Key] = set()
        for key, new in changes.items():
            old = self._objects.get(key)
            if new is old or new == old:
                continue
            touched.add(key)
            before, after = self._memberships(key[0], old), self._memberships(key[0], new)
            for bucket in before ^ after:
                self._move(bucket, key, added=bucket in after)
                touched.add(bucket)
            if new is None:
                del self._objects[key]
            else:
                self._objects[key] = new
        return frozenset(touched)

    def _move(self, bucket: Key, key: Key, *, added: bool) -> None:
        """Record a move for the next read. A bucket that nothing reads keeps no deleted objects."""
        moves = self._pending_moves.setdefault(bucket, {})
        if moves.pop(key, None) is None:
            moves[key] = added
        # Without a move of this key, the bucket is as at the last read.
        is_empty = len(moves) == len(self._buckets.get(bucket, _EMPTY)) and not any(moves.values())
        if is_empty:
            self._buckets.pop(bucket, None)
        if is_empty or not moves:
            del self._pending_moves[bucket]

    def _memberships(self, kind: str, value: Any) -> set[Key]:
        if value is None:
            return set()
        return {bucket for index in self._indexes.get(kind, ()) for bucket in index(value)}
