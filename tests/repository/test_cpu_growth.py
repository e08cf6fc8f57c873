"""The measure of growth tells quadratic work from linear work, in Python and below."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fakes.cpu_growth import assert_linear, steps

MAX_SIZE = 200_000


def compare_all(size: int) -> None:
    for first in range(size):
        for _second in range(first):
            pass


def compare_some(size: int) -> None:
    """Compare few, so that nine tenths of the work at the first size are linear."""
    compare_all(size // 8)
    for _ in range(16 * size):
        pass


@pytest.mark.parametrize(
    "work",
    [compare_all, compare_some, lambda size: re.search("a*b", "a" * size)],
    ids=["Python", "mostly linear", "expression"],
)
def test_quadratic_work_fails(work: Callable[[int], Any]) -> None:
    with pytest.raises(AssertionError, match="16 times the size"):
        assert_linear(work, int, MAX_SIZE)


@pytest.mark.parametrize(
    "work",
    [
        lambda size: {number * 7919 % size: number for number in range(size)},
        lambda size: sorted(str(number * 7919 % size) for number in range(size)),
        lambda size: re.sub("a", "b", "a" * size),
    ],
    ids=["hash table", "sorting", "expression"],
)
def test_linear_work_passes(work: Callable[[int], Any]) -> None:
    assert_linear(work, int, MAX_SIZE)


def test_equal_work_has_equal_steps() -> None:
    assert steps(lambda: compare_all(50)) == steps(lambda: compare_all(50)) > 50 * 49
