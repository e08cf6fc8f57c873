"""The query engine: what runs again after a change, and that it always equals a fresh compile."""

from __future__ import annotations

import contextlib
import gc
import pickle
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.incremental.query import Ask, Engine, Key, QueryCycleError, Snapshot
from gatehouse.incremental.table import Table


def route(number: int) -> Key:
    return ("Route", "ns", str(number))


def by_host(value: tuple[str, int]) -> list[Key]:
    return [("@by-host", value[0])]


def translated(ask: Ask, key: Key) -> int:
    value = ask.read(key)
    return 0 if value is None else int(value[1]) * 2


def host(ask: Ask, name: str) -> tuple[int, ...]:
    return tuple(ask(translated, key) for key in ask.read(("@by-host", name)))


def parity(ask: Ask, name: str) -> int:
    return sum(ask(host, name)) % 4


def engine_with(objects: dict[Key, tuple[str, int]]) -> Engine:
    engine = Engine(Snapshot({"Route": [by_host]}))
    engine.commit(objects)
    return engine


def run(engine: Engine, *hosts: str) -> tuple[list[tuple[int, ...]], int]:
    before = engine.runs
    with engine.compile() as ask:
        result = [ask(host, name) for name in hosts]
    return result, engine.runs - before


def test_no_query_reruns_when_nothing_changed() -> None:
    engine = engine_with({route(1): ("a", 1), route(2): ("b", 2)})
    assert run(engine, "a", "b") == ([(2,), (4,)], 4)
    assert run(engine, "a", "b") == ([(2,), (4,)], 0)


def test_only_queries_that_read_a_changed_object_rerun() -> None:
    engine = engine_with({route(n): ("abc"[n % 3], n) for n in range(30)})
    run(engine, "a", "b", "c")
    engine.commit({route(0): ("a", 100)})
    assert run(engine, "a", "b", "c")[1] == 2


def test_equal_result_keeps_identity_and_skips_dependents() -> None:
    engine = engine_with({route(1): ("a", 1)})
    with engine.compile() as ask:
        before = ask(host, "a")
        ask(parity, "a")
    engine.commit({route(1): ("a", 3)})  # another host value, the same parity
    runs = engine.runs
    with engine.compile() as ask:
        assert ask(host, "a") == (6,)
        assert ask(host, "a") is not before
        assert ask(parity, "a") == 2
    assert engine.runs - runs == 3


def test_commit_of_equal_value_changes_nothing() -> None:
    engine = engine_with({route(1): ("a", 1)})
    run(engine, "a")
    assert engine.commit({route(1): ("a", 1)}) == frozenset()
    assert run(engine, "a")[1] == 0


def test_creation_of_absent_input_reruns_its_query() -> None:
    engine = engine_with({})
    with engine.compile() as ask:
        assert ask(translated, route(9)) == 0
    engine.commit({route(9): ("a", 4)})
    with engine.compile() as ask:
        assert ask(translated, route(9)) == 8


def test_object_that_changes_bucket_changes_both_buckets() -> None:
    engine = engine_with({route(1): ("a", 1), route(2): ("b", 2)})
    assert run(engine, "a", "b")[0] == [(2,), (4,)]
    changed = engine.commit({route(1): ("b", 1)})
    assert changed == {route(1), ("@by-host", "a"), ("@by-host", "b")}
    assert run(engine, "a", "b")[0] == [(), (2, 4)]


def test_unread_query_results_are_discarded() -> None:
    engine = engine_with({route(1): ("a", 1), route(2): ("b", 2)})
    run(engine, "a", "b")
    run(engine, "a")
    assert run(engine, "a", "b")[1] == 2


class HostileError(Exception):
    pass


def raising(ask: Ask, key: Key) -> int:
    raise HostileError(ask.read(key))


def caught(ask: Ask, key: Key) -> str:
    try:
        return str(ask(raising, key))
    except HostileError as error:
        return str(error)


@pytest.mark.parametrize("query", [raising, caught])
def test_errors_of_unread_queries_are_freed_without_the_collector(
    query: Callable[[Ask, Key], object],
) -> None:
    """The traceback of a cached error refers to the frames of the engine and of the query."""
    engine = engine_with({route(1): ("a", 1)})
    gc.disable()
    try:
        with engine.compile() as ask, contextlib.suppress(HostileError):
            ask(query, route(1))
        error = weakref.ref(engine._memos[raising][route(1),].error)
        assert error() is not None
        run(engine)
        assert error() is None
    finally:
        gc.enable()


def test_deleted_objects_leave_nothing_in_buckets_that_are_not_read_again() -> None:
    engine = engine_with({})
    snapshot = engine.snapshot
    before = pickle.dumps((snapshot._objects, snapshot._buckets, snapshot._pending_moves))
    numbers = range(10)
    engine.commit({route(n): (f"read{n % 4}", n) for n in numbers})
    run(engine, *(f"read{n}" for n in range(4)))
    engine.commit({route(n): (f"unread{n}", n) for n in numbers})
    engine.commit({route(n): (f"read{n % 4}", n) for n in numbers})
    engine.commit({route(n): None for n in numbers})
    after = pickle.dumps((snapshot._objects, snapshot._buckets, snapshot._pending_moves))
    assert after == before
    assert run(engine, "read0")[0] == [()]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", None]), st.booleans())))
def test_buckets_have_their_members_whenever_they_are_read(
    steps: list[tuple[int, str | None, bool]],
) -> None:
    snapshot, expected = Snapshot({"Route": [by_host]}), dict[Key, str | None]()
    for number, name, read in steps:
        snapshot.apply({route(number): None if name is None else (name, number)})
        expected[route(number)] = name
        for bucket in ("a", "b") if read else ():
            members = [key for key, host in sorted(expected.items()) if host == bucket]
            assert [*snapshot.get(("@by-host", bucket))] == members


def test_failed_pass_loses_no_change() -> None:
    engine = engine_with({route(1): ("a", 1)})
    run(engine, "a")
    engine.commit({route(1): ("a", 5)})
    with pytest.raises(RuntimeError, match="elsewhere"), engine.compile() as ask:
        ask(host, "a")
        raise RuntimeError("elsewhere")
    engine.commit({route(2): ("a", 6)})
    assert run(engine, "a")[0] == [(10, 12)]


def test_recursive_query_raises_error() -> None:
    def loop(ask: Ask, argument: int) -> int:
        return ask(loop, argument)

    engine = engine_with({})
    with pytest.raises(QueryCycleError, match="loop"), engine.compile() as ask:
        ask(loop, 1)


EDITS = st.lists(
    st.dictionaries(
        st.integers(0, 6).map(route),
        st.none() | st.tuples(st.sampled_from("abc"), st.integers(0, 5)),
        max_size=4,
    ),
    max_size=12,
)


@given(EDITS)
def test_incremental_results_equal_full_evaluation(
    edits: list[dict[Key, tuple[str, int] | None]],
) -> None:
    engine = engine_with({})
    for edit in edits:
        engine.commit(edit)
        with engine.compile() as ask:
            incremental = [(ask(host, name), ask(parity, name)) for name in "abc"]
        fresh = engine_with(engine.snapshot.objects())
        with fresh.compile() as ask:
            assert incremental == [(ask(host, name), ask(parity, name)) for name in "abc"]


def fragile(ask: Ask, key: Key) -> int:
    value = ask.read(key)
    if value[1] < 0:
        raise ValueError(f"{value[1]} is negative")
    return int(value[1])


def careful(ask: Ask, key: Key) -> int | None:
    try:
        return ask(fragile, key)
    except ValueError:
        return None


def test_failed_query_reruns_only_when_its_inputs_change() -> None:
    engine = engine_with({route(1): ("a", -1)})
    for expected in (1, 0):
        before = engine.runs
        with pytest.raises(ValueError, match="negative"), engine.compile() as ask:
            ask(fragile, route(1))
        assert engine.runs - before == expected
    engine.commit({route(1): ("a", 1)})
    with engine.compile() as ask:
        assert ask(fragile, route(1)) == 1


def test_query_that_caught_an_error_reruns_when_the_error_changes() -> None:
    engine = engine_with({route(1): ("a", -1)})
    for value, expected in ((-1, None), (4, 4), (-2, None)):
        engine.commit({route(1): ("a", value)})
        with engine.compile() as ask:
            assert ask(careful, route(1)) == expected


def test_unchanged_intermediate_result_stops_propagation() -> None:
    engine = engine_with({route(n): ("a", n) for n in range(300)})
    results: list[int] = []

    def shared(ask: Ask, _: str) -> int:
        return len(ask.read(("@by-host", "a"))) // 1000

    def each_route(ask: Ask, key: Key) -> int:
        results.append(ask(shared, ""))
        return int(ask.read(key)[1])

    def every_route(ask: Ask, _: str) -> int:
        return sum(ask.each(each_route, ask.read(("@by-host", "a"))))

    for added in (None, 300):
        if added is not None:
            engine.commit({route(added): ("a", added)})
        results.clear()
        with engine.compile() as ask:
            ask(every_route, "")
    assert len(results) == 1


def test_each_returns_results_of_individual_queries() -> None:
    engine = engine_with({route(n): ("a", n - 1) for n in range(3)})
    keys = [route(n) for n in range(3)]

    def total(ask: Ask, _: str) -> list[int]:
        return ask.each(fragile, keys, failed=lambda key, error: -len(key))

    with engine.compile() as ask:
        assert ask.each(translated, keys) == [-2, 0, 2]
        assert ask(total, "") == [-3, 0, 1]
        with pytest.raises(ValueError, match="-1 is negative"):
            ask.each(fragile, keys)
    engine.commit({route(0): ("a", 7)})
    with engine.compile() as ask:
        assert ask(total, "") == [7, 0, 1]


def test_query_with_a_new_dependency_sees_one_snapshot() -> None:
    """Its callee is further from the inputs than the query was, and still to be updated."""
    observed: list[tuple[tuple[str, ...], list[str | None]]] = []

    def source(ask: Ask, _: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        used: tuple[str, ...] = ask.read(("Used",)) or ()
        return used, ask.read(("Names",)) or ()

    def names(ask: Ask, _: str) -> Table[str, str]:
        return Table((name, name) for name in ask(source, "")[1])

    def far(ask: Ask, distance: int) -> Table[str, str]:
        return ask(far, distance - 1) if distance else ask(names, "")

    def user(ask: Ask, _: str) -> tuple[str | None, ...]:
        used = ask(source, "")[0]
        values = [ask.entry(far, 5, key=name) for name in used]
        observed.append((used, values))
        return tuple(values)

    engine = Engine(Snapshot())
    for used in ((), ("a",), ("a", "b"), (), ("c",)):
        engine.commit({("Used",): used, ("Names",): used})
        with engine.compile() as ask:
            assert ask(far, 5) is not None
            assert ask(user, "") == used
    assert [values for _, values in observed] == [[*used] for used, _ in observed]


def test_change_reaches_callers_of_a_query_whose_new_dependency_is_far_from_inputs() -> None:
    """The new dependency is updated first, and the value of the query stays equal."""

    def far(ask: Ask, distance: int) -> int:
        below = ask(far, distance - 1) if distance else 0
        return below + int(ask.read(("Far",))) if distance == 4 else below

    def near(ask: Ask, _: str) -> bool:
        return ask.read(("IsFar",)) and ask(far, 5) > 1

    def caller(ask: Ask, _: str) -> bool:
        return ask(near, "")

    engine = Engine(Snapshot())
    results = []
    for is_far, value in ((False, 0), (True, 1), (True, 2)):
        engine.commit({("IsFar",): is_far, ("Far",): value})
        with engine.compile() as ask:
            results.append(ask(caller, ""))
            ask(far, 5)
    assert results == [False, False, True]


def test_query_and_its_callee_may_exchange_places() -> None:
    def first(ask: Ask, _: str) -> int:
        return 1 + ask(second, "") if ask.read(("Above",)) == "first" else 10

    def second(ask: Ask, _: str) -> int:
        return 1 + ask(first, "") if ask.read(("Above",)) == "second" else 20

    engine = Engine(Snapshot())
    for above, values in 3 * (("first", (21, 20)), ("second", (10, 11))):
        engine.commit({("Above",): above})
        with engine.compile() as ask:
            assert (ask(first, ""), ask(second, "")) == values


NODES = 6


def node(ask: Ask, name: int) -> int:
    """Query of a graph: the objects say which nodes it calls, and its value seldom changes."""
    value, callees = ask.read(("Node", str(name)))
    for callee in callees:
        value += ask(node, callee) if callee % 2 else ask.entry(entry_of, callee, key="")
    return int(value % 3)


def entry_of(ask: Ask, name: int) -> Table[str, int]:
    return Table({"": ask(node, name)})


@st.composite
def graphs(draw: st.DrawFn) -> dict[Key, tuple[int, tuple[int, ...]]]:
    """Return the objects of an acyclic graph."""
    order = draw(st.permutations(range(NODES)))
    return {
        ("Node", str(name)): (
            draw(st.integers(0, 2)),
            tuple(draw(st.lists(st.sampled_from(order[:place]), max_size=3, unique=True)))
            if place
            else (),
        )
        for place, name in enumerate(order)
    }


@given(st.lists(st.tuples(graphs(), st.sets(st.integers(0, NODES - 1))), min_size=2, max_size=8))
def test_results_equal_full_evaluation_while_dependencies_change(
    steps: list[tuple[dict[Key, tuple[int, tuple[int, ...]]], set[int]]],
) -> None:
    engine = Engine(Snapshot())
    for graph, names in steps:
        engine.commit(graph)
        fresh = Engine(Snapshot())
        fresh.commit(graph)
        with engine.compile() as ask, fresh.compile() as ask_fresh:
            for name in names:
                assert ask(node, name) == ask_fresh(node, name)
