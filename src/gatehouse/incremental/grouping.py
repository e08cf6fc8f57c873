"""Tables derived from other tables, updated by looking only at what changed.

Each result is a value that includes its inputs, so that the cost of the next one depends on the
difference. Computed without the previous result, it is the same. A query gets its previous result
from :meth:`gatehouse.incremental.query.Ask.last`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from gatehouse.incremental.table import Table, table_difference

K = TypeVar("K", bound=Any)
V = TypeVar("V")
G = TypeVar("G", bound=Hashable)
M = TypeVar("M")
About = TypeVar("About")

GroupsOf = Callable[[About, K, V], Iterable[G]]
"""Returns the groups that an entry belongs to. ``About`` is the same for all entries."""

Make = Callable[[About, G, tuple[K, ...]], M]
"""Builds the value of a group from the group and the sorted keys of its entries."""


class Grouping(msgspec.Struct, Generic[About, K, V, G, M], frozen=True):
    """The entries of a table, grouped."""

    source: Table[K, V]
    about: About
    members: Table[G, tuple[K, ...]]
    groups: Table[G, M]


def group_by(
    last: Grouping[About, K, V, G, M] | None,
    source: Table[K, V],
    groups_of: GroupsOf[About, K, V, G],
    make: Make[About, G, K, M],
    about: About,
) -> Grouping[About, K, V, G, M]:
    """Group the entries of a table.

    ``last`` is the previous result for the same functions, if there is one.
    """
    if last is None or last.about != about:
        last = Grouping(Table(), about, Table(), Table())
    touched: dict[G, list[K]] = {}
    for key, old, new in last.source.diff(source):
        before = set(groups_of(about, key, old)) if old is not None else set()
        after = set(groups_of(about, key, new)) if new is not None else set()
        for group in before ^ after:
            if group not in touched:
                touched[group] = list(last.members.get(group, ()))
            index = bisect_left(touched[group], key)
            # One slice assignment per entry: cheap even if many entries belong to one group.
            touched[group][index : index + (group in before)] = [key] if group in after else []
    members = {group: tuple(keys) for group, keys in touched.items() if keys}
    gone = touched.keys() - members.keys()
    values = {group: make(about, group, keys) for group, keys in members.items()}
    values = {group: value for group, value in values.items() if last.groups.get(group) != value}
    return Grouping(
        source, about, last.members.updated(members, gone), last.groups.updated(values, gone)
    )


def presence(_: object, __: object, ___: object) -> bool:
    """Return True. Use as ``make`` if only the existence of a group matters."""
    return True


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


class Derived(msgspec.Struct, Generic[About, K, V, M], frozen=True):
    """A value for each entry of a table."""

    source: Table[K, V]
    about: About
    table: Table[K, M]


def derive(
    last: Derived[About, K, V, M] | None,
    source: Table[K, V],
    make: Callable[[About, K, V], M | None],
    about: About,
) -> Derived[About, K, V, M]:
    """Build a value for each entry of a table; entries with the value None are left out.

    ``make`` must be cheap: it runs again for every entry when ``about`` changes. ``last`` is the
    previous result for the same function, if there is one.
    """
    if last is None or last.about != about:
        last = Derived(Table(), about, Table())
    new, gone = {}, []
    for key, _, value in last.source.diff(source):
        derived = make(about, key, value) if value is not None else None
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
