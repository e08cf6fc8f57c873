"""Deadlines: each is reported once when it has passed, and again if the clock is set back."""

from __future__ import annotations

from typing import Any

import pytest

from gatehouse.compiler.frontends.inputs import deadline_key
from gatehouse.controller.deadlines import MAX_SLEEP_SECONDS, Deadlines
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table

CLUSTER: Key = ("UpstreamCluster", "", "a.example")


class Inputs:
    """Recorded inputs and a settable clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told: dict[Key, Any] = {}
        self.moments = Deadlines(self._put, lambda: self.now)

    def _put(self, key: Key, value: Any) -> bool:
        changed = self.told.get(key) is not value
        self.told[key] = value
        return changed

    def known(self, *moments: int) -> list[Any]:
        return [self.told.get(deadline_key(moment)) for moment in moments]


@pytest.fixture
def inputs() -> Inputs:
    return Inputs()


def test_deadlines_report_expiry_when_added_and_when_time_passes(inputs: Inputs) -> None:
    named: Table[Key, tuple[int, ...]] = Table({CLUSTER: (900, 1000, 1010)})
    assert inputs.moments.update(named)
    assert inputs.known(900, 1000, 1010) == [True, True, False]
    assert inputs.moments.next_wakeups() == [10.0]
    inputs.now = 1009.9
    assert not inputs.moments.update(named)
    inputs.now = 1010.0
    assert inputs.moments.next_wakeups() == [0.0]
    assert inputs.moments.update(named)
    assert inputs.known(1010) == [True]
    assert inputs.moments.next_wakeups() == []


def test_deadlines_drop_inputs_that_are_not_referenced(inputs: Inputs) -> None:
    inputs.moments.update(Table({CLUSTER: (900, 1010)}))
    inputs.moments.update(Table({CLUSTER: (1010,)}))
    assert inputs.known(900, 1010) == [None, False]
    inputs.moments.update(Table())
    assert inputs.moments.next_wakeups() == []


def test_deadlines_follow_clock_that_is_set_back(inputs: Inputs) -> None:
    named: Table[Key, tuple[int, ...]] = Table({CLUSTER: (900,)})
    inputs.moments.update(named)
    inputs.now = 800.0
    assert inputs.moments.update(named)
    assert inputs.known(900) == [False]
    assert inputs.moments.next_wakeups() == [MAX_SLEEP_SECONDS]
