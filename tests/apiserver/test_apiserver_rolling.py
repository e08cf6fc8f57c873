"""Rolling update of a Deployment, step by step, with Pods whose availability the test controls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.apiserver.controllers.rolling_update import ReplicaSetState, bounds, scales


def spec(replicas: int, surge: Any = "25%", missing: Any = "25%") -> dict[str, Any]:
    update = {"maxSurge": surge, "maxUnavailable": missing}
    return {
        "replicas": replicas,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": update},
    }


@pytest.mark.parametrize(
    ("replicas", "surge", "missing", "expected"),
    [
        (1, "25%", "25%", (2, 1)),
        (2, "25%", "25%", (3, 2)),
        (10, "25%", "25%", (13, 8)),
        (2, 0, "100%", (2, 0)),
        (3, 0, 0, (3, 2)),
        (3, 1, 0, (4, 3)),
    ],
)
def test_shares_are_rounded_up_for_more_and_down_for_fewer(
    replicas: int, surge: Any, missing: Any, expected: tuple[int, int]
) -> None:
    result = bounds(spec(replicas, surge, missing))
    assert (result.most, result.least) == expected


def test_an_old_pod_goes_only_when_a_new_one_is_available() -> None:
    wanted = spec(1)
    old = ReplicaSetState("old", 1, 1, 1)
    assert scales(wanted, ReplicaSetState("new", 0, 0, 0), [old]) == {"new": 1, "old": 1}
    assert scales(wanted, ReplicaSetState("new", 1, 1, 0), [old]) == {"new": 1, "old": 1}
    assert scales(wanted, ReplicaSetState("new", 1, 1, 1), [old]) == {"new": 1, "old": 0}


def test_one_that_never_served_goes_first() -> None:
    wanted, broken, old = (
        spec(2),
        ReplicaSetState("broken", 1, 1, 0),
        ReplicaSetState("old", 2, 2, 2),
    )
    assert scales(wanted, ReplicaSetState("new", 0, 0, 0), [old, broken]) == {
        "new": 0,
        "old": 2,
        "broken": 0,
    }


def test_all_go_at_once_where_they_may_and_none_is_added_before() -> None:
    # As in the controller's own Deployment, of which only one Pod is ever ready.
    wanted, old = spec(2, 0, "100%"), ReplicaSetState("old", 2, 2, 1)
    assert scales(wanted, ReplicaSetState("new", 0, 0, 0), [old]) == {"new": 0, "old": 0}
    assert scales(wanted, ReplicaSetState("new", 0, 0, 0), [ReplicaSetState("old", 0, 2, 1)]) == {
        "new": 2,
        "old": 0,
    }


def test_recreated_is_what_may_not_meet_its_successor() -> None:
    wanted = {"replicas": 2, "strategy": {"type": "Recreate"}}
    assert scales(wanted, ReplicaSetState("new", 0, 0, 0), [ReplicaSetState("old", 2, 2, 2)]) == {
        "old": 0,
        "new": 0,
    }
    assert scales(wanted, ReplicaSetState("new", 0, 0, 0), [ReplicaSetState("old", 0, 1, 0)]) == {
        "old": 0,
        "new": 0,
    }
    assert scales(wanted, ReplicaSetState("new", 0, 0, 0), [ReplicaSetState("old", 0, 0, 0)]) == {
        "old": 0,
        "new": 2,
    }


@given(
    st.integers(1, 12),
    st.sampled_from([0, 1, 3, "25%", "100%"]),
    st.sampled_from([0, 1, 2, "25%", "100%"]),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_every_update_ends_and_never_leaves_its_bounds(
    replicas: int, surge: Any, missing: Any, extra: list[int], chance: Any
) -> None:
    wanted = spec(replicas, surge, missing)
    allowed = bounds(wanted)
    asked = {f"old{n}": 0 for n in range(len(extra))} | {"old0": replicas, "new": 0}
    available = dict(asked)
    for _ in range(200):
        held = {
            name: ReplicaSetState(name, count, count, min(count, available[name]))
            for name, count in asked.items()
        }
        older = [each for name, each in held.items() if name != "new"]
        asked = scales(wanted, held["new"], older)
        assert sum(asked.values()) <= allowed.most
        available = {name: min(available[name], asked[name]) for name in asked}
        assert sum(available.values()) >= allowed.least
        if asked == {"new": replicas} | {each.name: 0 for each in older}:
            return
        if asked["new"] > available["new"] and chance.random() < 0.7:
            available["new"] += 1
    raise AssertionError(asked)
