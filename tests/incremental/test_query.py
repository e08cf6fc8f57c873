"""The query engine: what runs again after a change, and that it always equals a fresh compile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.incremental.query import Ask, Engine, Key, QueryCycleError, Snapshot


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
    asked: list[int] = []

    def shared(ask: Ask, _: str) -> int:
        return len(ask.read(("@by-host", "a"))) // 1000

    def each_route(ask: Ask, key: Key) -> int:
        asked.append(ask(shared, ""))
        return int(ask.read(key)[1])

    def every_route(ask: Ask, _: str) -> int:
        return sum(ask.each(each_route, ask.read(("@by-host", "a"))))

    for added in (None, 300):
        if added is not None:
            engine.commit({route(added): ("a", added)})
        asked.clear()
        with engine.compile() as ask:
            ask(every_route, "")
    assert len(asked) == 1


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
