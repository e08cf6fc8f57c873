"""Delays between attempts that fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.runtime.backoff import Backoff, BackoffPolicy

POLICY = BackoffPolicy(first=1.0, maximum=30.0)

SECONDS = st.floats(1e-3, 1e6)
POLICIES = st.builds(
    lambda first, factor, jitter: BackoffPolicy(first, first * factor, jitter),
    SECONDS,
    st.floats(1.0, 1e6),
    st.floats(0.0, 1.0),
)
FAILURES = st.integers(1, 10**9)
FRACTIONS = st.floats(0.0, 1.0)


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (2000, 30), (10**400, 30)],
)
def test_delay_doubles_up_to_maximum(failures: int, seconds: float) -> None:
    assert POLICY.delay(failures) == seconds


@pytest.mark.parametrize(("fraction", "seconds"), [(0.0, 4.0), (0.5, 3.0), (1.0, 2.0)])
def test_jitter_shortens_delay(fraction: float, seconds: float) -> None:
    policy = BackoffPolicy(first=4.0, maximum=30.0, jitter=0.5)
    assert policy.delay(1, lambda: fraction) == seconds


@pytest.mark.parametrize(
    ("first", "maximum", "jitter"),
    [(0.0, 1.0, 0.0), (-1.0, 1.0, 0.0), (2.0, 1.0, 0.0), (1.0, 2.0, -0.1), (1.0, 2.0, 1.1)],
)
def test_policy_is_rejected_when_value_is_invalid(
    first: float, maximum: float, jitter: float
) -> None:
    with pytest.raises(ValueError, match="invalid back-off"):
        BackoffPolicy(first, maximum, jitter)


@given(POLICIES, FAILURES, FRACTIONS)
def test_delay_is_within_bounds(policy: BackoffPolicy, failures: int, fraction: float) -> None:
    delay = policy.delay(failures, lambda: fraction)
    assert 0.0 <= delay <= policy.maximum
    assert delay >= policy.first * (1.0 - policy.jitter) * (1.0 - 1e-9)


@given(SECONDS, st.floats(1.0, 1e6), FAILURES)
def test_delay_never_shrinks_without_jitter(first: float, factor: float, failures: int) -> None:
    policy = BackoffPolicy(first, first * factor)
    assert policy.delay(failures) <= policy.delay(failures + 1)


def test_backoff_starts_over_after_success() -> None:
    backoff = Backoff(POLICY)
    assert [backoff.failed() for _ in range(3)] == [1, 2, 4]
    assert backoff.failures == 3
    backoff.succeeded()
    assert backoff.failures == 0
    assert backoff.failed() == 1


def test_backoff_respects_minimum_delay_of_server() -> None:
    backoff = Backoff(POLICY)
    assert backoff.failed(min_delay=60.0) == 60
    assert backoff.failed(min_delay=0.5) == 2
    assert backoff.failed(None) == 4


@pytest.mark.parametrize(
    ("runs", "delays"),
    [
        ([0.0, 1.0, 10.0], [1, 2, 4]),
        ([0.0, 0.0, 10.1, 0.0], [1, 2, 1, 2]),
        ([11.0, 11.0], [1, 1]),
    ],
)
def test_steady_run_counts_as_success(runs: list[float], delays: list[float]) -> None:
    backoff = Backoff(BackoffPolicy(first=1.0, maximum=30.0, steady=10.0))
    assert [backoff.ended(ran) for ran in runs] == delays


def test_first_retries_are_immediate_when_configured() -> None:
    policy = BackoffPolicy(first=1.0, maximum=30.0, steady=10.0, immediate=1)
    backoff = Backoff(policy)
    assert [backoff.ended(ran) for ran in (0.0, 0.0, 0.0, 11.0, 0.0)] == [0, 1, 2, 0, 1]
    with pytest.raises(ValueError, match="invalid back-off"):
        BackoffPolicy(first=1.0, maximum=30.0, immediate=-1)


@given(st.lists(st.floats(0.0, 1e9)))
def test_no_run_counts_as_success_by_default(runs: list[float]) -> None:
    backoff = Backoff(POLICY)
    for ran in runs:
        backoff.ended(ran)
    assert backoff.failures == len(runs)
