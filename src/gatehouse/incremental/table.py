"""Persistent maps: immutable sorted maps that share unchanged chunks.

A table is a sequence of chunks of some dozens of entries. A table derived from another shares all
chunks except those that differ. The cost of an update or a diff is therefore the size of the
difference plus a look at each chunk, however many entries there are. Values are never None.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import chain, filterfalse, takewhile
from operator import and_, attrgetter, eq, is_, itemgetter, truth
from typing import Any, TypeVar, overload

K = TypeVar("K", bound=Any)
V = TypeVar("V")
T = TypeVar("T")

CHUNK_ITEMS = 32
"""Average number of entries in a chunk."""


class Chunk(Mapping[K, V]):
    """Consecutive entries, sorted by key. Compares by identity."""

    __slots__ = ("first", "ordered", "stored")

    def __init__(self, keys: tuple[K, ...], values: tuple[V, ...]) -> None:
        self.ordered = keys
        """The keys, sorted."""
        self.stored = values
        """The values, in the order of the keys."""
        self.first = keys[0] if keys else None
        """The first key; None if the chunk is empty."""

    def __getitem__(self, key: K) -> V:
        index = bisect_left(self.ordered, key)
        if index < len(self.ordered) and self.ordered[index] == key:
            return self.stored[index]
        raise KeyError(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.ordered)

    def __len__(self) -> int:
        return len(self.ordered)

    __eq__, __hash__ = object.__eq__, object.__hash__

    def entries(self) -> Iterator[tuple[K, V]]:
        """Return the pairs of key and value."""
        return zip(self.ordered, self.stored, strict=True)


_first_of, _keys_of, _values_of = map(attrgetter, ("first", "ordered", "stored"))


class Table(Mapping[K, V]):
    """An immutable sorted map; see the module's docstring."""

    __slots__ = ("_length", "chunks")

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._build(_cut(dict(entries)))

    def _build(self, chunks: Iterable[Chunk[K, V]]) -> None:
        self.chunks = tuple(filter(_keys_of, chunks))
        self._length: int | None = None

    @classmethod
    def joined(cls, chunks: Iterable[Chunk[K, V]]) -> Table[K, V]:
        """Build a table from chunks in the order of their keys. Empty chunks are dropped."""
        table: Table[K, V] = cls.__new__(cls)
        table._build(chunks)
        return table

    @classmethod
    def of(cls, keys: Iterable[K]) -> Table[K, K]:
        """Build a table in which every key is its own value."""
        return Table((key, key) for key in keys)

    def __getitem__(self, key: K) -> V:
        if not self.chunks:
            raise KeyError(key)
        return self.chunks[self._chunk_index(key)][key]

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    def get(self, key: K, /, default: T | None = None) -> V | T | None:
        """Return the value of a key, or the default. One call, since queries read so many."""
        if self.chunks:
            chunk = self.chunks[max(0, bisect_right(self.chunks, key, key=_first_of) - 1)]
            index = bisect_left(chunk.ordered, key)
            if index < len(chunk.ordered) and chunk.ordered[index] == key:
                return chunk.stored[index]
        return default

    def _chunk_index(self, key: K) -> int:
        return max(0, bisect_right(self.chunks, key, key=_first_of) - 1)

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(map(_keys_of, self.chunks))

    def __len__(self) -> int:
        if self._length is None:
            self._length = sum(map(len, map(_keys_of, self.chunks)))
        return self._length

    def __bool__(self) -> bool:
        return bool(self.chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        keys, values, other_keys, other_values = _apart(self, other)
        return keys == other_keys and values == other_values

    def __hash__(self) -> int:
        raise TypeError("tables are not hashed")

    def __repr__(self) -> str:
        return f"Table({dict(self.items())!r})"

    def values(self) -> Values[V]:
        """Return the values in the order of their keys. Comparing two such views is cheap."""
        return Values(self)

    def items(self) -> ItemsView[K, V]:
        """Return the entries in the order of their keys."""
        return _Items(self)

    def updated(self, new: Mapping[K, V], gone: Collection[K] = ()) -> Table[K, V]:
        """Return a table with the entries ``new`` and without the keys ``gone``."""
        if not (new or gone):
            return self
        if not self.chunks:
            return Table(new)
        edits: dict[int, dict[K, V | None]] = {}
        for key, value in chain(((key, None) for key in gone), new.items()):
            index = self._chunk_index(key)
            edits.setdefault(index, {})[key] = value
            if key >= self.chunks[index].ordered[-1] and index + 1 < len(self.chunks):
                # If the end of a chunk moves, its entries run into the next chunk.
                edits.setdefault(index + 1, {})
        chunks: list[Chunk[K, V]] = []
        open_: dict[K, V | None] = {}
        done = 0
        for index, changes in sorted(edits.items(), key=itemgetter(0)):
            if index > done:
                chunks += (*_cut(open_), *self.chunks[done:index])
                open_ = {}
            chunk = self.chunks[index]
            open_.update(zip(chunk.ordered, chunk.stored, strict=True))
            open_ |= changes
            done = index + 1
        return Table.joined((*chunks, *_cut(open_), *self.chunks[done:]))

    def diff(self, later: Table[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
        """Yield the key, old and new value of entries whose value is another object in
        ``later``."""
        columns = _apart(self, later)
        # Most entries of a changed chunk are the same: they are skipped without a look at each.
        rest = slice(_agreement(*columns), None)
        keys, values, new_keys, new_values = map(itemgetter(rest), columns)
        if not (keys or new_keys):
            return
        last = _agreement(*map(reversed, (keys, values, new_keys, new_values)))
        end, new_end = len(keys) - last, len(new_keys) - last
        new = dict(zip(new_keys[:new_end], new_values[:new_end], strict=True))
        for key, value in zip(keys[:end], values[:end], strict=True):
            replacement = new.pop(key, None)
            if replacement is not value:
                yield key, value, replacement
        for key, value in new.items():
            yield key, None, value

    def between(self, first: K, end: K) -> Table[K, V]:
        """Return the entries with keys from ``first`` up to, but not including, ``end``."""
        chunks = []
        for chunk in self.chunks[self._chunk_index(first) :] if self.chunks else ():
            left, right = bisect_left(chunk.ordered, first), bisect_left(chunk.ordered, end)
            whole = right - left == len(chunk.ordered)
            chunks.append(
                chunk if whole else Chunk(chunk.ordered[left:right], chunk.stored[left:right])
            )
            if right < len(chunk.ordered):
                break
        return Table.joined(chunks)


class Values(ValuesView[V]):
    """The values of a table in the order of their keys. Compares by content."""

    def __init__(self, table: Table[Any, V]) -> None:
        super().__init__(table)
        self.table = table

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(map(_values_of, self.table.chunks))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and (self is other or self.table == other.table)

    def __hash__(self) -> int:
        raise TypeError("tables are not hashed")


class _Items(ItemsView[K, V]):
    def __init__(self, table: Table[K, V]) -> None:
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(chunk.entries() for chunk in self._table.chunks)


def table_difference(before: Collection[T], after: Collection[T]) -> tuple[list[T], list[T]]:
    """Return the objects of ``after`` that are not in ``before``, and the reverse."""
    if before is after:
        return [], []
    if isinstance(before, Values) and isinstance(after, Values):
        changes = [(old, new) for _, old, new in before.table.diff(after.table)]
        return [new for _, new in changes if new is not None], [
            old for old, _ in changes if old is not None
        ]
    old_by_id, new_by_id = ({id(item): item for item in items} for items in (before, after))
    added = [new_by_id[identity] for identity in new_by_id.keys() - old_by_id.keys()]
    return added, [old_by_id[identity] for identity in old_by_id.keys() - new_by_id.keys()]


_Apart = tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]


def _apart(mine: Table[Any, Any], other: Table[Any, Any]) -> _Apart:
    """Return keys and values of the chunks that two tables do not share, of both tables."""
    if mine.chunks == other.chunks:
        return (), (), (), ()
    shared = {*mine.chunks}.intersection(other.chunks).__contains__
    old, new = [*filterfalse(shared, mine.chunks)], [*filterfalse(shared, other.chunks)]
    join = chain.from_iterable
    old_keys, old_values = [*join(map(_keys_of, old))], [*join(map(_values_of, old))]
    return old_keys, old_values, [*join(map(_keys_of, new))], [*join(map(_values_of, new))]


def _agreement(
    keys: Iterable[Any], values: Iterable[Any], keys_2: Iterable[Any], values_2: Iterable[Any]
) -> int:
    """Return how many of the first entries are the same: equal keys, identical values."""
    same = map(and_, map(eq, keys, keys_2), map(is_, values, values_2))
    return len(list(takewhile(truth, same)))


def _cut(entries: Mapping[K, V | None]) -> Iterator[Chunk[K, V]]:
    """Cut entries into chunks. Entries with the value None are dropped.

    The end of a chunk depends on its last key alone, so adding or removing an entry does not move
    other boundaries.
    """
    keys: list[K] = []
    values: list[V] = []
    for key in sorted(entries):
        value = entries[key]
        if value is None:
            continue
        keys.append(key)
        values.append(value)
        if hash(key) % CHUNK_ITEMS == 0:
            yield Chunk(tuple(keys), tuple(values))
            keys, values = [], []
    if keys:
        yield Chunk(tuple(keys), tuple(values))
