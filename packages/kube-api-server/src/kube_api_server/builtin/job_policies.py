"""Validation of the policies of Jobs: failed Pods, success by indexes, replacement of Pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kube_api_server.causes import (
    check_number,
    duplicate_cause,
    invalid_cause,
    required_cause,
    unsupported_cause,
)
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import check_label_name

_MAX_RULES = 20
_MAX_EXIT_CODES = 255
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_INTERVAL = re.compile(r"(0|[1-9][0-9]{0,9})(-(0|[1-9][0-9]{0,9}))?")


def check_policies(field: str, spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the violations of the policies of a Job."""
    failures, success = spec.get("podFailurePolicy"), spec.get("successPolicy")
    if failures is not None:
        rules = failures.get("rules") or []
        yield from check_number(f"{field}.podFailurePolicy.rules", rules, _MAX_RULES)
        for index, rule in enumerate(rules):
            yield from _failure_rule(f"{field}.podFailurePolicy.rules[{index}]", rule, spec)
    if success is not None and spec.get("completionMode") != "Indexed":
        yield invalid_cause(f"{field}.successPolicy", success, "requires indexed completion mode")
    elif success is not None:
        yield from _success(f"{field}.successPolicy.rules", success.get("rules") or [], spec)
    replacement = spec.get("podReplacementPolicy")
    supported = ("Failed",) if failures is not None else ("Failed", "TerminatingOrFailed")
    if replacement is not None and replacement not in supported:
        yield unsupported_cause(f"{field}.podReplacementPolicy", replacement, supported)


def _choice(field: str, value: str, supported: tuple[str, ...]) -> Iterator[Cause]:
    if not value:
        listing = " ".join(f'"{one}"' for one in supported)
        yield required_cause(field, f"valid values: [{listing}]")
    elif value not in supported:
        yield unsupported_cause(field, value, supported)


def _failure_rule(field: str, rule: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Cause]:
    action, codes = rule.get("action") or "", rule.get("onExitCodes")
    conditions = rule.get("onPodConditions") or []
    yield from _choice(f"{field}.action", action, _ACTIONS)
    if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        why = "requires the backoffLimitPerIndex to be set"
        yield invalid_cause(f"{field}.action", action, why)
    if codes is not None:
        yield from _exit_codes(f"{field}.onExitCodes", codes, spec)
    yield from check_number(f"{field}.onPodConditions", conditions, _MAX_RULES)
    for index, condition in enumerate(conditions):
        place = f"{field}.onPodConditions[{index}]"
        yield from check_label_name(condition.get("type") or "", f"{place}.type")
        yield from _choice(f"{place}.status", condition.get("status") or "", _STATUSES)
    if (codes is not None) == bool(conditions):
        which = "both" if conditions else "one of"
        end = "not supported" if conditions else "required"
        why = f"specifying {which} OnExitCodes and OnPodConditions is {end}"
        yield Cause("FieldValueInvalid", f"Invalid value: {why}", field)


def _exit_codes(field: str, codes: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Cause]:
    operator, values = codes.get("operator") or "", codes.get("values") or []
    yield from _choice(f"{field}.operator", operator, _OPERATORS)
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {
        container.get("name")
        for kind in ("containers", "initContainers")
        for container in pod.get(kind) or ()
    }
    if (name := codes.get("containerName")) is not None and name not in names:
        why = "must be one of the container or initContainer names in the pod template"
        yield invalid_cause(f"{field}.containerName", name, why)
    if not values:
        yield invalid_cause(f"{field}.values", values, "at least one value is required")
    yield from check_number(f"{field}.values", values, _MAX_EXIT_CODES)
    for index, value in enumerate(values):
        place = f"{field}.values[{index}]"
        if operator == "In" and value == 0:
            yield invalid_cause(place, value, "must not be 0 for the In operator")
        if value in values[:index]:
            yield duplicate_cause(place, value)
    if values != sorted(values):
        yield invalid_cause(f"{field}.values", values, "must be ordered")


def _success(field: str, rules: list[Any], spec: Mapping[str, Any]) -> Iterator[Cause]:
    if not rules:
        why = "at least one rules must be specified when the successPolicy is specified"
        yield required_cause(field, why)
    yield from check_number(field, rules, _MAX_RULES)
    completions = spec.get("completions") or 0
    for index, rule in enumerate(rules):
        place = f"{field}[{index}]"
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            why = "at least one of succeededCount or succeededIndexes must be specified"
            yield required_cause(place, why)
        total = completions if indexes is None else _number_of_indexes(indexes, completions)
        if total is None:
            why = "error parsing succeededIndexes: must be ascending indexes of completions"
            yield invalid_cause(f"{place}.succeededIndexes", indexes, why)
        if count is not None and count < 0:
            why = "must be greater than or equal to 0"
            yield invalid_cause(f"{place}.succeededCount", count, why)
        elif count is not None and count > (total or 0):
            why = f"must be less than or equal to {total or 0}"
            yield invalid_cause(f"{place}.succeededCount", count, why)


def _number_of_indexes(text: str, completions: int) -> int | None:
    """Return the number of indexes in intervals such as `0-2,4`; None if it is malformed."""
    total, last = 0, -1
    for part in text.split(",") if text else ():
        match = _INTERVAL.fullmatch(part)
        if match is None:
            return None
        first = int(match[1])
        end = int(match[3]) if match[3] else first
        if not last < first <= end < completions:
            return None
        total, last = total + end - first + 1, end
    return total
