"""Validation of PodDisruptionBudgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kube_api_server.causes import invalid_cause, required_cause, unsupported_cause
from kube_api_server.errors import Cause
from kube_base.types.objects import Object

_PERCENT = re.compile(r"[0-9]+%")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_STATUSES = ("False", "True", "Unknown")


def check_disruption_budget(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield violations of the limits, of which one may be set, and of the selector."""
    spec = obj.get("spec") or {}
    limits = [name for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None]
    if len(limits) == 2:
        why = "minAvailable and maxUnavailable cannot be both set"
        yield invalid_cause("spec", {name: spec[name] for name in limits}, why)
    for name in limits:
        yield from _limit(f"spec.{name}", spec[name])
    for index, expression in enumerate((spec.get("selector") or {}).get("matchExpressions") or ()):
        operator = expression.get("operator")
        if operator not in _OPERATORS:
            field = f"spec.selector.matchExpressions[{index}].operator"
            yield invalid_cause(field, operator, "not a valid selector operator")
    for index, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        yield from _condition(f"status.conditions[{index}]", condition)


def _condition(field: str, condition: Object) -> Iterator[Cause]:
    for name in ("type", "lastTransitionTime", "reason"):
        if not condition.get(name):
            yield required_cause(f"{field}.{name}")
    if condition["status"] not in _STATUSES:
        yield unsupported_cause(f"{field}.status", condition["status"], _STATUSES)


def _limit(field: str, value: Any) -> Iterator[Cause]:
    if isinstance(value, int):
        if value < 0:
            yield invalid_cause(field, value, "must be greater than or equal to 0")
    elif not _PERCENT.fullmatch(value):
        why = "a valid percent string must be a numeric string followed by an ending '%'"
        yield invalid_cause(field, value, why)
    elif len(digits := value[:-1].lstrip("0")) > 3 or int(digits or 0) > 100:
        yield invalid_cause(field, value, "must not be greater than 100%")
