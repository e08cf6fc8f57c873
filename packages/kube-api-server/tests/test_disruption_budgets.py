"""Limits of PodDisruptionBudgets."""

from __future__ import annotations

import pytest

from kube_api_server.builtin.disruption_budgets import check_disruption_budget


@pytest.mark.parametrize("value", ["0%", "100%", "0" * 5000 + "100%", 0, 7])
def test_limit_is_a_number_or_a_percentage(value: object) -> None:
    assert not [*check_disruption_budget({"spec": {"minAvailable": value}}, None)]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("101%", "must not be greater than 100%"),
        ("1" * 5000 + "%", "must not be greater than 100%"),
        ("half", "a valid percent string must be a numeric string followed by an ending '%'"),
        (-1, "must be greater than or equal to 0"),
    ],
)
def test_other_limit_is_a_violation(value: object, why: str) -> None:
    (cause,) = check_disruption_budget({"spec": {"maxUnavailable": value}}, None)
    assert cause.field == "spec.maxUnavailable"
    assert why in cause.message
