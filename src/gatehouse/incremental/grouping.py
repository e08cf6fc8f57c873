"""Tables derived from other tables, updated by looking only at what changed.

Each result is a value that includes its inputs, so that the cost of the next one depends on the
difference. Computed without the previous result, it is the same. A query gets its previous result
from :meth:`gatehouse.incremental.query.Ask.last`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from gatehouse.incremental.table import Table

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


def union(last: Union[K, V] | None, sources: tuple[Table[K, V], ...]) -> Union[K, V]:
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
