"""Tables derived from other tables, updated by looking only at what changed.

Each derivation is a function of its last result, which includes its inputs, so that the cost of the
next one depends on the difference. Computed without the last result, the table is the same. Queries
use the methods of :class:`Derivations`, which keep the last results.

Functions of entries must be cheap and depend on the arguments of the query only. Anything else that
they depend on is ``about``: if it differs from the last time, all entries are computed again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar, overload

import msgspec

from gatehouse.incremental.table import Table, table_difference

K = TypeVar("K", bound=Any)
V = TypeVar("V")
G = TypeVar("G", bound=Hashable)
M = TypeVar("M")
S = TypeVar("S")

GroupsOf = Callable[[K, V], Iterable[G]]
"""Returns the groups that an entry belongs to."""

Make = Callable[[G, tuple[K, ...]], M]
"""Builds the value of a group from the group and the sorted keys of its entries."""


class Derivations(ABC):
    """Derives tables for the running query. A query derives one table with these methods."""

    @overload
    def group_by(
        self, source: Table[K, V], groups_of: GroupsOf[K, V, G], *, about: object = None
    ) -> Table[G, tuple[K, ...]]: ...

    @overload
    def group_by(
        self,
        source: Table[K, V],
        groups_of: GroupsOf[K, V, G],
        make: Make[G, K, M],
        *,
        about: object = None,
    ) -> Table[G, M]: ...

    def group_by(
        self,
        source: Table[K, V],
        groups_of: GroupsOf[K, V, G],
        make: Make[G, K, Any] | None = None,
        *,
        about: object = None,
    ) -> Table[G, Any]:
        """Group the entries of a table. The value of a group is the keys of its entries, sorted, or
        what ``make`` builds of them."""
        grouping = self._advance(group_by, source, groups_of, make, about)
        return grouping.members if make is None else grouping.groups

    def derive(
        self, source: Table[K, V], make: Callable[[K, V], M | None], *, about: object = None
    ) -> Table[K, M]:
        """Build a value for each entry of a table; entries with the value None are left out."""
        return self._advance(derive, source, make, about).table

    def merge(self, sources: tuple[Table[K, V], ...]) -> Table[K, V]:
        """Merge tables. The first one wins for equal keys."""
        return self._advance(merge_tables, sources).whole

    def by_key(self, items: Collection[V], key_of: Callable[[V], K]) -> Table[K, V]:
        """Return items as a table. Keys must be distinct."""
        return self.by_name({"": items}, lambda _, item: key_of(item))

    def by_name(
        self, collections: Mapping[G, Collection[V]], key_of: Callable[[G, V], K]
    ) -> Table[K, V]:
        """Return the items of named collections as a table. Keys must be distinct.

        ``key_of`` returns the key of an item, given the name of its collection.
        """
        return self._advance(by_key, collections, key_of).table

    def total(self, source: Table[K, V], number: Callable[[V], int]) -> int:
        """Add a number of each entry of a table."""
        return self._advance(total, source, number).total

    @abstractmethod
    def _advance(self, step: Callable[..., S], *inputs: Any) -> S:
        """Return the next result of a derivation and keep it for the next run of the query."""


class Grouping(msgspec.Struct, Generic[K, V, G, M], frozen=True):
    """The entries of a table, grouped."""

    source: Table[K, V]
    about: object
    members: Table[G, tuple[K, ...]]
    groups: Table[G, M]
    """Empty if only the members are wanted."""


def group_by(
    last: Grouping[K, V, G, M] | None,
    source: Table[K, V],
    groups_of: GroupsOf[K, V, G],
    make: Make[G, K, M] | None,
    about: object,
) -> Grouping[K, V, G, M]:
    """Group the entries of a table.

    ``last`` is the previous result for the same functions, if there is one.
    """
    if last is None or last.about != about:
        last = Grouping(Table(), about, Table(), Table())
    touched: dict[G, list[K]] = {}
    for key, old, new in last.source.diff(source):
        before = set(groups_of(key, old)) if old is not None else set()
        after = set(groups_of(key, new)) if new is not None else set()
        for group in before ^ after:
            if group not in touched:
                touched[group] = list(last.members.get(group, ()))
            index = bisect_left(touched[group], key)
            # One slice assignment per entry: cheap even if many entries belong to one group.
            touched[group][index : index + (group in before)] = [key] if group in after else []
    members = {group: tuple(keys) for group, keys in touched.items() if keys}
    gone = touched.keys() - members.keys()
    groups = last.groups
    if make is not None:
        values = {group: make(group, keys) for group, keys in members.items()}
        values = {group: value for group, value in values.items() if groups.get(group) != value}
        groups = groups.updated(values, gone)
    return Grouping(source, about, last.members.updated(members, gone), groups)


def presence(_: object, __: object) -> bool:
    """Return True. Use as ``make`` if only the existence of a group matters."""
    return True


def entry_count(_: object, keys: tuple[object, ...]) -> int:
    """Return the number of entries of a group. Use as ``make``."""
    return len(keys)


class Union(msgspec.Struct, Generic[K, V], frozen=True):
    """The entries of several tables. The first table wins for equal keys."""

    sources: tuple[Table[K, V], ...]
    whole: Table[K, V]


def merge_tables(last: Union[K, V] | None, sources: tuple[Table[K, V], ...]) -> Union[K, V]:
    """Merge tables. ``last`` is the previous result, if there is one."""
    if len(sources) == 1:
        return Union(sources, sources[0])
    if last is None or len(last.sources) != len(sources):
        last = Union(tuple(Table() for _ in sources), Table())
    touched = {
        key
        for before, after in zip(last.sources, sources, strict=True)
        for key, _, _ in before.diff(after)
    }
    new: dict[K, V] = {}
    for source in reversed(sources):
        new |= {key: source[key] for key in touched if key in source}
    return Union(sources, last.whole.updated(new, touched - new.keys()))


class Derived(msgspec.Struct, Generic[K, V, M], frozen=True):
    """A value for each entry of a table."""

    source: Table[K, V]
    about: object
    table: Table[K, M]


def derive(
    last: Derived[K, V, M] | None,
    source: Table[K, V],
    make: Callable[[K, V], M | None],
    about: object,
) -> Derived[K, V, M]:
    """Build a value for each entry of a table; entries with the value None are left out.

    ``last`` is the previous result for the same function, if there is one.
    """
    if last is None or last.about != about:
        last = Derived(Table(), about, Table())
    new, gone = {}, []
    for key, _, value in last.source.diff(source):
        derived = make(key, value) if value is not None else None
        if derived is None:
            gone.append(key)
        elif last.table.get(key) != derived:
            new[key] = derived
    return Derived(source, about, last.table.updated(new, gone))


class Keyed(msgspec.Struct, Generic[G, K, V], frozen=True):
    """Items of several collections as one table."""

    sources: Mapping[G, Collection[V]]
    table: Table[K, V]


def by_key(
    last: Keyed[G, K, V] | None,
    sources: Mapping[G, Collection[V]],
    key_of: Callable[[G, V], K],
) -> Keyed[G, K, V]:
    """Merge named collections into a table. Keys must be distinct.

    ``key_of`` returns the key of an item, given the name of its collection. ``last`` is the
    previous result for the same function, if there is one.
    """
    last = last or Keyed({}, Table())
    new: dict[K, V] = {}
    gone: set[K] = set()
    for name in last.sources.keys() | sources.keys():
        added, removed = table_difference(last.sources.get(name, ()), sources.get(name, ()))
        new |= {key_of(name, item): item for item in added}
        gone |= {key_of(name, item) for item in removed}
    return Keyed(sources, last.table.updated(new, gone - new.keys()))


class Sum(msgspec.Struct, Generic[K, V], frozen=True):
    """The sum of a number of each entry of a table."""

    source: Table[K, V]
    total: int


def total(last: Sum[K, V] | None, source: Table[K, V], number: Callable[[V], int]) -> Sum[K, V]:
    """Add a number of each entry. ``last`` is the previous result for the same function."""
    last = last or Sum(Table(), 0)
    changes = [
        (number(new) if new is not None else 0) - (number(old) if old is not None else 0)
        for _, old, new in last.source.diff(source)
    ]
    return Sum(source, last.total + sum(changes))
