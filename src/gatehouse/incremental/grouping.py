"""Tables made of other tables, by looking at what changed only.

Each is a value that knows what it was made of, so that the next one costs what is different; made
without the last one it is the same. A query has that by :meth:`gatehouse.query.Ask.last`.
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
"""Gives the groups that an entry belongs to. ``About`` is the same for all entries."""

Make = Callable[[About, G, tuple[K, ...]], M]
"""Makes what is to stand for a group, of it and the sorted keys of its entries."""


class Grouping(msgspec.Struct, Generic[About, K, V, G, M], frozen=True):
    """The entries of a table by the groups that they belong to."""

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
    """Group the entries of a table; ``last``: what this gave before, with the same functions."""
    if last is None or last.about != about:
        last = Grouping(Table(), about, Table(), Table())
    found: dict[G, list[K]] = {}
    for key, old, new in last.source.diff(source):
        before = set(groups_of(about, key, old)) if old is not None else set()
        after = set(groups_of(about, key, new)) if new is not None else set()
        for group in before ^ after:
            if group not in found:
                found[group] = list(last.members.get(group, ()))
            place = bisect_left(found[group], key)
            # A list is moved at once, so that many entries of one group are no trouble.
            found[group][place : place + (group in before)] = [key] if group in after else []
    members = {group: tuple(keys) for group, keys in found.items() if keys}
    gone = found.keys() - members.keys()
    made = {group: make(about, group, keys) for group, keys in members.items()}
    made = {group: value for group, value in made.items() if last.groups.get(group) != value}
    return Grouping(
        source, about, last.members.updated(members, gone), last.groups.updated(made, gone)
    )


def presence(_: object, __: object, ___: object) -> bool:
    """Make nothing of a group: that there is one is all."""
    return True


class Union(msgspec.Struct, Generic[K, V], frozen=True):
    """The entries of several tables; of equal keys those of the first."""

    sources: tuple[Table[K, V], ...]
    whole: Table[K, V]


def union(last: Union[K, V] | None, sources: tuple[Table[K, V], ...]) -> Union[K, V]:
    """Unite tables; ``last``: what this gave before."""
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
