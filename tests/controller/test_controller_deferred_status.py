"""Statuses that wait: found by what they wait for, they go when a look at all lets them go."""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.controller.deferred_status import MAX_DEFER_SECONDS, DeferredStatuses
from gatehouse.incremental.query import Key

GATEWAYS: tuple[Key, ...] = tuple(("Gateway", "ns", name) for name in "abc")
OBJECTS: tuple[Key, ...] = tuple(("HTTPRoute", "ns", name) for name in "rst")


class Plain:
    """The promise, by looking at everything."""

    def __init__(self) -> None:
        self.held: dict[Key, deque[tuple[Any, dict[Key, int], float]]] = {}

    def released(self, served: dict[Key, int], now: float) -> dict[Key, Any]:
        result = {}
        for key, held in self.held.items():
            while held and (
                now >= held[0][2] or all(served.get(g, n) >= n for g, n in held[0][1].items())
            ):
                result[key] = held.popleft()[0]
        return result

    def next_release(self) -> float | None:
        return min((held[0][2] for held in self.held.values() if held), default=None)


HELD = st.tuples(
    st.just("hold"),
    st.sampled_from(OBJECTS),
    st.dictionaries(st.sampled_from(GATEWAYS), st.integers(1, 4)),
)
STEPS = st.lists(
    HELD
    | st.tuples(st.just("forget"), st.sampled_from(OBJECTS), st.just({}))
    | st.tuples(st.just("serve"), st.sampled_from(GATEWAYS), st.none() | st.integers(0, 4))
    | st.tuples(
        st.just("wait"),
        st.just(()),
        st.sampled_from([0.0, 1.0, MAX_DEFER_SECONDS / 2, MAX_DEFER_SECONDS]),
    ),
    max_size=30,
)


@given(STEPS)
def test_release_ready_equals_full_scan(steps: list[Any]) -> None:
    holding, plain, now, number = DeferredStatuses(), Plain(), 0.0, 0
    served: dict[Key, int] = dict.fromkeys(GATEWAYS, 0)
    news: set[Key] = set()
    for what, key, value in steps:
        match what:
            case "hold":
                number += 1
                holding.defer(key, number, value, now)  # type: ignore[arg-type]
                plain.held.setdefault(key, deque()).append((number, value, now + MAX_DEFER_SECONDS))
            case "forget":
                holding.discard(key)
                plain.held.pop(key, None)
            case "serve":
                served.pop(key, None)
                served |= {} if value is None else {key: value}
                news.add(key)
            case "wait":
                now += value
                released = holding.release_ready(news, served.get, now)
                statuses = {name: status for name, status, _ in released}
                assert statuses == plain.released(served, now)
                assert holding.next_release() == plain.next_release()
                news.clear()


def test_deferred_statuses_are_empty_after_release() -> None:
    holding = DeferredStatuses()
    for number in range(3):
        for key in OBJECTS:
            holding.defer(key, number, {GATEWAYS[0]: 1, GATEWAYS[1]: 1}, 0.0)  # type: ignore[arg-type]
    holding.discard(OBJECTS[0])
    released = list(holding.release_ready(GATEWAYS[:1], lambda _: 1, 0.0))
    awaited = {GATEWAYS[0]: 1, GATEWAYS[1]: 1}
    assert released == [(key, 2, awaited) for key in OBJECTS[1:]]  # type: ignore[comparison-overlap]
    assert holding.next_release() is None
    assert not any(vars(holding).values())
