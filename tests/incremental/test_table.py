"""Tables: what they hold, what they share, and what is made of them by looking at changes only."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.incremental.grouping import (
    Derived,
    Grouping,
    Keyed,
    Sum,
    Union,
    by_key,
    derive,
    group_by,
    merge_tables,
    total,
)
from gatehouse.incremental.query import Ask, Engine, Key, Snapshot
from gatehouse.incremental.table import CHUNK_ITEMS, Table, table_difference

KEYS = st.integers(0, 400).map(lambda number: f"k{number:03}")
EDITS = st.lists(st.dictionaries(KEYS, st.none() | st.integers(0, 3), max_size=60), max_size=6)


def edited(table: Table[str, int], edit: dict[str, int | None]) -> Table[str, int]:
    new = {key: value for key, value in edit.items() if value is not None}
    return table.updated(new, edit.keys() - new.keys())


@given(EDITS)
def test_table_is_a_sorted_map(edits: list[dict[str, int | None]]) -> None:
    table, held = Table[str, int](), dict[str, int]()
    for edit in edits:
        before, table = table, edited(table, edit)
        was = dict(held)
        held |= {key: value for key, value in edit.items() if value is not None}
        held = {key: value for key, value in held.items() if edit.get(key, 0) is not None}
        assert list(table.items()) == sorted(held.items())
        assert list(table.values()) == [held[key] for key in sorted(held)]
        assert list(table) == sorted(held)
        assert (len(table), bool(table)) == (len(held), bool(held))
        assert table == Table(held)
        assert (table == before) is (held == was)
        for key in ("k000", "k200", "zzz", *edit):
            assert table.get(key) == held.get(key)
            assert (key in table) is (key in held)
        changes = {key: (old, new) for key, old, new in before.diff(table)}
        differing = {key for key in was.keys() | held.keys() if was.get(key) != held.get(key)}
        assert changes == {key: (was.get(key), held.get(key)) for key in differing}
        part = table.between("k100", "k300")
        assert list(part.items()) == [e for e in sorted(held.items()) if "k100" <= e[0] < "k300"]


def test_added_entry_shares_other_chunks() -> None:
    table = Table((f"k{number:05}", number) for number in range(10_000))
    assert CHUNK_ITEMS / 2 < len(table) / len(table.chunks) < CHUNK_ITEMS * 2
    more = table.updated({"k05000a": 1})
    other = set(map(id, more.chunks)) - set(map(id, table.chunks))
    assert len(other) <= 3
    assert more.updated({}, ["k05000a"]) == table


def test_chunks_depend_only_on_entries() -> None:
    names = [f"k{number:05}" for number in range(2_000)]
    grown = Table[str, str]()
    for name in reversed(names):
        grown = grown.updated({name: name, name + "x": name})
    grown = grown.updated({}, [name + "x" for name in names])
    assert [chunk.ordered for chunk in grown.chunks] == [
        chunk.ordered for chunk in Table.of(names).chunks
    ]


@given(EDITS)
def test_difference_returns_added_and_removed_values(edits: list[dict[str, int | None]]) -> None:
    table = Table[str, Any]()
    for edit in edits:
        objects = {key: None if value is None else object() for key, value in edit.items()}
        before, table = table, edited(table, objects)  # type: ignore[arg-type]
        expected = ({*table.values()} - {*before.values()}, {*before.values()} - {*table.values()})
        for old, new in (
            (before.values(), table.values()),
            ((*before.values(),), (*table.values(),)),
        ):
            fresh, gone = table_difference(old, new)
            assert ({*fresh}, {*gone}) == expected


def halves(about: int, key: str, value: int) -> Iterable[tuple[int, str]]:
    return [(value, key[:2])] if value % about else [(value, key[:2]), (-1, "")]


def listed(about: int, group: tuple[int, str], keys: tuple[str, ...]) -> str:
    return f"{about} {group}: {','.join(keys)}"


def grouped(
    last: Grouping[str, int, tuple[int, str], str] | None, table: Table[str, int], about: int
) -> Grouping[str, int, tuple[int, str], str]:
    return group_by(last, table, partial(halves, about), partial(listed, about), about)


@given(EDITS, st.lists(st.integers(1, 2), min_size=6, max_size=6))
def test_incremental_group_by_equals_full_group_by(
    edits: list[dict[str, int | None]], abouts: list[int]
) -> None:
    table = Table[str, int]()
    last: Grouping[str, int, tuple[int, str], str] | None = None
    for edit, about in zip(edits, abouts, strict=False):
        table = edited(table, edit)
        last = grouped(last, table, about)
        assert last == grouped(None, table, about)
        members = group_by(None, table, partial(halves, about), None, about).members
        assert members == last.members


def test_unchanged_group_keeps_identity() -> None:
    table = Table({f"k{number:03}": number % 3 for number in range(300)})
    first = grouped(None, table, 2)
    second = grouped(first, table.updated({"k001": 0}), 2)
    unchanged = [old is new for _, old, new in first.groups.diff(second.groups)]
    assert len(unchanged) == 3
    assert second.groups[(2, "k0")] is first.groups[(2, "k0")]


@given(st.lists(st.lists(EDITS, min_size=3, max_size=3), max_size=3))
def test_incremental_union_equals_full_union(
    steps: list[list[list[dict[str, int | None]]]],
) -> None:
    tables = [Table[str, int](), Table[str, int](), Table[str, int]()]
    last: Union[str, int] | None = None
    for step in steps:
        for number, edits in enumerate(step):
            for edit in edits:
                tables[number] = edited(tables[number], edit)
        last = merge_tables(last, tuple(tables))
        expected = dict[str, int]()
        for table in reversed(tables):
            expected |= table
        assert dict(last.whole) == expected
        assert last == merge_tables(None, tuple(tables))


def doubled(about: int, key: str, value: int) -> int | None:
    return value * 2 if value % about else None


@given(EDITS, st.lists(st.integers(1, 3), min_size=6, max_size=6))
def test_incremental_derive_equals_full_derive(
    edits: list[dict[str, int | None]], abouts: list[int]
) -> None:
    table = Table[str, int]()
    last: Derived[str, int, int] | None = None
    for edit, about in zip(edits, abouts, strict=False):
        table = edited(table, edit)
        last = derive(last, table, partial(doubled, about), about)
        expected = {key: value * 2 for key, value in table.items() if value % about}
        assert dict(last.table) == expected


def named(collection: str, value: tuple[str, int]) -> tuple[str, str]:
    return collection, value[0]


@given(st.lists(st.tuples(st.sampled_from("ab"), EDITS), max_size=5), st.booleans())
def test_incremental_by_key_equals_full_by_key(
    steps: list[tuple[str, list[dict[str, int | None]]]], as_tuples: bool
) -> None:
    tables = {"a": Table[str, tuple[str, int]](), "b": Table[str, tuple[str, int]]()}
    last: Keyed[str, tuple[str, str], tuple[str, int]] | None = None
    for name, edits in steps:
        for edit in edits:
            values = {key: (key, value) for key, value in edit.items() if value is not None}
            gone = [key for key, value in edit.items() if value is None]
            tables[name] = tables[name].updated(values, gone)
        sources: dict[str, Collection[tuple[str, int]]] = {
            origin: tuple(table.values()) if as_tuples else table.values()
            for origin, table in tables.items()
        }
        last = by_key(last, sources, named)
        expected = {
            (origin, key): value for origin, table in tables.items() for key, value in table.items()
        }
        assert dict(last.table) == expected


@given(EDITS)
def test_incremental_total_equals_full_total(edits: list[dict[str, int | None]]) -> None:
    table = Table[str, int]()
    last: Sum[str, int] | None = None
    for edit in edits:
        table = edited(table, edit)
        last = total(last, table, abs)
        assert last.total == sum(map(abs, table.values()))


# Queries over tables


def by_parity(value: int) -> list[Key]:
    return [("@all",)]


def length(ask: Ask, key: Key) -> int | None:
    value = ask.read(key)
    if value < 0:
        raise ValueError(key[1])
    return int(value) if value else None


def lengths(ask: Ask, failed: Any) -> Table[Key, int]:
    return ask.map(length, ask.read(("@all",)), failed)


def instead(key: Key, error: Exception) -> int:
    return -100


def world(count: int) -> Engine:
    engine = Engine(Snapshot({"N": [by_parity]}))
    engine.commit({("N", f"{number:05}"): number for number in range(count)})
    return engine


def test_map_reads_every_value_and_omits_none() -> None:
    engine = world(1_000)
    with engine.compile() as ask:
        assert [*ask(lengths, None).values()] == [*range(1, 1_000)]
    engine.commit({("N", "00500"): None, ("N", "00501"): 7, ("N", "1"): 8, ("N", "00000"): 9})
    with engine.compile() as ask:
        actual = ask(lengths, None)
    assert (len(actual), actual["N", "00501"], actual["N", "1"]) == (1_000, 7, 8)
    assert ("N", "00500") not in actual


def test_map_raises_error_or_uses_fallback() -> None:
    engine = world(200)
    engine.commit({("N", "00100"): -1})
    with engine.compile() as ask:
        with pytest.raises(ValueError, match="00100"):
            ask(lengths, None)
        assert ask(lengths, instead)["N", "00100"] == -100


def test_queries_per_change_are_independent_of_table_size() -> None:
    engine = world(5_000)
    with engine.compile() as ask:
        ask(lengths, None)
    runs = engine.runs
    engine.commit({("N", "02500x"): 1})
    with engine.compile() as ask:
        ask(lengths, None)
    # The new one, its chunk (or the two that it was cut into) and the table.
    assert engine.runs - runs <= 4


def by_value(ask: Ask, limit: int) -> Table[int, tuple[Key, ...]]:
    """Group numbers from ``limit`` on. A negative one is an error of :func:`length`."""
    numbers = ask(lengths, None)
    return ask.group_by(numbers, lambda _, number: [number] if number >= limit else [])


def with_most(ask: Ask, with_limit: bool) -> Table[Key, int]:
    limit = ask.read(("N", "limit")) or 0
    return ask.derive(
        ask(lengths, None),
        lambda _, number: number if number <= limit else None,
        about=limit if with_limit else None,
    )


def derived_twice(ask: Ask, _: str) -> int:
    numbers = ask(lengths, None)
    return ask.total(numbers, abs) + ask.total(numbers, abs)


def test_query_keeps_the_last_result_of_its_derivation() -> None:
    engine, visited = world(1_000), list[int]()
    steps: list[tuple[dict[Key, int], int]] = [({}, 999), ({("N", "00007"): 8}, 2)]

    def visits(ask: Ask, limit: int) -> Table[int, tuple[Key, ...]]:
        def groups_of(_: Key, number: int) -> list[int]:
            visited.append(number)
            return [number] if number >= limit else []

        return ask.group_by(ask(lengths, None), groups_of)

    for changes, expected in steps:
        engine.commit(changes)
        visited.clear()
        with engine.compile() as ask:
            assert ask(visits, 5) == ask(by_value, 5)
        assert len(visited) == expected
    with engine.compile() as ask:
        assert ask(by_value, 5)[8] == (("N", "00007"), ("N", "00008"))


def test_derivation_is_whole_again_after_an_error() -> None:
    engine = world(100)
    for number in (5, -1, 7):
        engine.commit({("N", "00050"): number})
        with engine.compile() as ask, contextlib.suppress(ValueError):
            ask(by_value, 1)
    with engine.compile() as ask:
        assert ask(by_value, 1)[7] == (("N", "00007"), ("N", "00050"))


def test_derivation_depends_on_what_it_is_about() -> None:
    engine = world(100)
    for limit in (10, 20):
        engine.commit({("N", "limit"): limit})
        with engine.compile() as ask:
            assert max(ask(with_most, True).values()) == limit


def test_query_derives_one_table() -> None:
    with world(10).compile() as ask, pytest.raises(RuntimeError, match="one table"):
        ask(derived_twice, "")


def keyed(ask: Ask, _: str) -> Table[str, int]:
    return Table({"even": 0, "odd": 1, **{key[1]: ask.read(key) for key in ask.read(("@all",))}})


def entry(ask: Ask, argument: str, key: str) -> int | None:
    return ask.entry(keyed, argument, key=key)


def entries(ask: Ask, argument: str) -> Table[str, int]:
    return ask.map_keys(entry, keyed, argument)


def test_query_of_one_entry_depends_on_that_entry_only() -> None:
    engine = world(1_000)
    with engine.compile() as ask:
        assert ask(entry, "", "00500") == 500
        assert ask(entry, "", "absent") is None
    runs = engine.runs
    engine.commit({("N", "00499"): 1})
    with engine.compile() as ask:
        ask(entry, "", "00500")
        ask(entry, "", "absent")
    assert engine.runs - runs == 1
    engine.commit({("N", "00500"): 7, ("N", "absent"): 8})
    with engine.compile() as ask:
        assert (ask(entry, "", "00500"), ask(entry, "", "absent")) == (7, 8)
    engine.commit({("N", "00500"): None})
    with engine.compile() as ask:
        assert (ask(entry, "", "00500"), ask(entry, "", "absent")) == (None, 8)


def test_table_stays_cached_while_its_entries_are_used() -> None:
    engine = world(10)
    for _ in range(2):
        with engine.compile() as ask:
            ask(entry, "", "00005")
    runs = engine.runs
    with engine.compile() as ask:
        ask(entry, "", "00005")
    assert engine.runs == runs
    with engine.compile():
        pass
    with engine.compile() as ask:
        ask(entry, "", "00005")
    assert engine.runs - runs == 2


@given(EDITS)
def test_map_of_keys_equals_the_table(edits: list[dict[str, int | None]]) -> None:
    engine = Engine(Snapshot({"N": [by_parity]}))
    for edit in edits:
        engine.commit({("N", key): value for key, value in edit.items()})
        with engine.compile() as ask:
            assert dict(ask(entries, "x")) == dict(ask(keyed, "x"))


def test_map_of_keys_runs_few_queries_for_one_changed_entry() -> None:
    engine = world(5_000)
    with engine.compile() as ask:
        ask(entries, "")
    runs = engine.runs
    engine.commit({("N", "02500"): 1})
    with engine.compile() as ask:
        assert ask(entries, "")["02500"] == 1
    # The table and its keys, the entry and the query for it, its chunk, the table of results.
    assert engine.runs - runs <= 6
