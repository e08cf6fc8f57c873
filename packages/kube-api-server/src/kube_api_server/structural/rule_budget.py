"""Limits of the estimated cost of a schema's CEL rules."""

from __future__ import annotations

from collections.abc import Iterator

from kube_api_server.causes import forbidden_cause
from kube_api_server.errors import Cause
from kube_api_server.structural.cel_ranges import LARGEST_COST

MAX_RULE_COST = 10_000_000
MAX_SCHEMA_COST = 100_000_000

_NAMED = 4
"""Number of the most expensive rules that an error names."""


class RuleBudget:
    """The costs of the rules of one schema."""

    def __init__(self) -> None:
        self._total = 0
        self._expensive: list[tuple[int, str]] = []

    def add(self, field: str, cost: int, name: str) -> Iterator[Cause]:
        """Add the cost of an expression; yield the violation of its limit."""
        self._total = min(self._total + cost, LARGEST_COST)
        if cost >= MAX_SCHEMA_COST // 100:
            self._expensive.append((cost, field))
        if cost > MAX_RULE_COST:
            yield _exceeded(field, f"estimated {name} cost", cost, MAX_RULE_COST)

    def check(self, field: str) -> Iterator[Cause]:
        """Yield the violations of the limit of all rules. ``field``: that of the schema."""
        if self._total <= MAX_SCHEMA_COST:
            return
        why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"  # noqa: E501
        for _, rule in sorted(self._expensive, key=lambda pair: -pair[0])[:_NAMED]:
            yield forbidden_cause(rule, why)
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield _exceeded(field, name, self._total, MAX_SCHEMA_COST)


def _exceeded(field: str, name: str, cost: int, limit: int) -> Cause:
    factor = cost / limit
    text = f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x"
    if factor > 100:
        text = "more than 100x"
    why = f"{name} exceeds budget by factor of {text} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"  # noqa: E501
    return forbidden_cause(field, why)
