"""Validation of the CEL rules in a schema: types, fields, estimated costs, use of the old value.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kube_api_server.causes import invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_api_server.structural import cel_types, declared
from kube_api_server.structural.cel import Program, uses_variable
from kube_api_server.structural.cel_costs import largest_cost
from kube_api_server.structural.cel_ranges import LARGEST_COST
from kube_api_server.structural.cel_sizes import Declared, declared_sizes
from kube_api_server.structural.rule_budget import RuleBudget
from kube_base.types.objects import Schema

_RESULTS = {
    "bool": (cel_types.BOOL, cel_types.DYN),
    "string": (cel_types.STRING, cel_types.DYN),
}


class Place(msgspec.Struct, frozen=True):
    """Place of a part of a schema."""

    path: str
    number: int | None = 1
    """Maximum number of its values in an object; None without a limit."""
    uncorrelated: str = ""
    """Path of the outermost part whose values are not compared with old ones; empty for none."""
    root: bool = False

    def inside(self, schema: Schema, step: str) -> Place:
        """Return the place of a part of the schema at this place."""
        correlated, number = True, self.number
        if step == "items":
            correlated = schema.get("x-kubernetes-list-type") == "map"
            number = _product(number, schema.get("maxItems"))
        elif step == "additionalProperties":
            number = _product(number, schema.get("maxProperties"))
        else:
            correlated = schema.get("x-kubernetes-map-type", "granular") == "granular"
        uncorrelated = self.uncorrelated or ("" if correlated else self.path)
        return Place(f"{self.path}.{step}", number, uncorrelated)


def _product(number: int | None, limit: int | None) -> int | None:
    return None if number is None or limit is None else min(number * max(limit, 0), LARGEST_COST)


class RuleChecks:
    """Checks of the rules of one schema."""

    def __init__(self) -> None:
        self._budget = RuleBudget()

    def check(self, schema: Schema, place: Place) -> Iterator[Cause]:
        """Yield the violations of the rules of a part of the schema."""
        rules = schema.get("x-kubernetes-validations")
        if not rules:
            return
        sizes = declared_sizes(schema, resource=place.root) or Declared(0, 1)
        environments = {
            optional: cel_types.typed_environment(
                schema, resource=place.root, optional_old=optional
            )
            for optional in {bool(rule.get("optionalOldSelf")) for rule in rules}
        }
        number = sizes.largest_number if place.number is None else place.number
        for index, rule in enumerate(rules):
            field = f"{place.path}.x-kubernetes-validations[{index}]"
            text, optional = rule.get("rule") or "", bool(rule.get("optionalOldSelf"))
            if not text.strip():
                yield required_cause(f"{field}.rule", "rule is not specified")
                continue
            for name, times in (("rule", number), ("messageExpression", 1)):
                expression = (rule.get(name) or "").strip()
                if not expression:
                    continue
                try:
                    program = _compiled(expression, environments[optional], name)
                    _check_fields(expression, schema, place, optional_old=optional)
                except ValueError as error:
                    yield invalid_cause(f"{field}.{name}", rule[name], str(error))
                else:
                    cost = min(largest_cost(program.serialized(), sizes) * times, LARGEST_COST)
                    yield from self._budget.add(f"{field}.{name}", cost, name)
            yield from _check_old_value(rule, field, place)

    def check_total(self, path: str) -> Iterator[Cause]:
        """Yield the violations of the limits of all rules together."""
        return self._budget.check(path)


def _compiled(text: str, environment: Any, name: str) -> Program:
    """Compile an expression. Raises ValueError, also if it has another result."""
    program = cel_types.compile_typed(text, environment)
    result = "bool" if name == "rule" else "string"
    if program.result_type not in _RESULTS[result]:
        raise ValueError(f"must evaluate to {result}")
    return program


def _check_fields(text: str, schema: Schema, place: Place, *, optional_old: bool) -> None:
    """Check the fields that a rule selects where CEL's types end, in lists of lists.

    Raises ValueError for undeclared ones.
    """
    fields = declared.undefined(text, schema, resource=place.root, optional_old=optional_old)
    errors = "\nERROR: ".join(fields)
    if errors:
        raise ValueError(f"compilation failed: ERROR: {errors}")


def _check_old_value(rule: Schema, field: str, place: Place) -> Iterator[Cause]:
    if not uses_variable(rule["rule"], "oldSelf"):
        if rule.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            yield invalid_cause(f"{field}.optionalOldSelf", rule["optionalOldSelf"], why)
    elif place.uncorrelated:
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelated}"  # noqa: E501
        yield invalid_cause(f"{field}.rule", rule["rule"], why)
