"""Division of a limit among data planes by their use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.compiler.frontends.upstream_cluster.shares import (
    DataPlaneUse,
    divided_limit,
    minimum_share,
)

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")

_needs = st.lists(st.none() | st.integers(0, 500), min_size=1, max_size=12)


def reported(*needs: int | None) -> dict[tuple[str, str], DataPlaneUse]:
    """Return data planes with these needs; None: not reported yet."""
    return {
        ("ns", f"p-{number}"): DataPlaneUse(True, None if need is None else {"s": need})
        for number, need in enumerate(needs)
    }


def shares(total: int, *needs: int | None) -> list[int]:
    planes = reported(*needs)
    result = divided_limit(planes, "s", total)
    assert result.keys() == planes.keys()
    return [result[name] for name in planes]


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ((0,), [100]),
        ((0, 0), [50, 50]),
        ((100, 0), [95, 5]),
        ((80, 0), [87, 12]),
        ((80, 10), [85, 15]),
        ((100, 100), [50, 50]),
        ((100, 100, 0), [47, 47, 5]),
        # The use of a data plane that has just joined is not known.
        ((60, None), [77, 22]),
        ((None,), [100]),
        ((None, None), [50, 50]),
    ],
)
def test_data_plane_with_more_need_has_more(
    needs: tuple[int | None, ...], expected: list[int]
) -> None:
    assert shares(100, *needs) == expected


@given(st.integers(0, 300), _needs)
def test_sum_of_shares_is_at_most_the_limit(total: int, needs: list[int | None]) -> None:
    result = shares(total, *needs)
    assert sum(result) <= max(total, len(needs) if total else 0)
    # An idle data plane can always serve a first request.
    assert all(share >= minimum_share(total, len(needs)) for share in result)
    assert all(share >= min(total, 1) for share in result)


def test_data_planes_that_serve_no_shares_have_the_even_share() -> None:
    planes = {
        A: DataPlaneUse(False),
        B: DataPlaneUse(True, {"s": 80}),
        C: DataPlaneUse(True, {"s": 0}),
    }
    assert divided_limit(planes, "s", 90) == {A: 30, B: 56, C: 4}


def follow(total: int, demands: list[int], start: list[int], rounds: int) -> list[int]:
    """Return the shares after some reports of data planes with these demands."""
    current = start
    for _ in range(rounds):
        needs = [
            min(total, 2 * share) if demand > share else demand
            for demand, share in zip(demands, current, strict=True)
        ]
        current = shares(total, *needs)
    return current


@pytest.mark.parametrize(
    ("demands", "start", "expected"),
    [
        ([80, 0], [50, 50], [87, 12]),
        ([0, 80], [87, 12], [12, 87]),
        ([200, 200], [95, 5], [50, 50]),
        ([90, 5, 5], [33, 33, 33], [90, 5, 5]),
    ],
)
def test_shares_follow_the_demand_within_eight_reports(
    demands: list[int], start: list[int], expected: list[int]
) -> None:
    assert follow(100, demands, start, 8) == pytest.approx(expected, abs=6)
