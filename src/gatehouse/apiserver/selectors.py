"""Label and field selectors, as text and as tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gatehouse.apiserver.errors import bad_request

Object = dict[str, Any]
Test = Callable[[Object], bool]

_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^)]*)\)$")
_SPLIT = re.compile(r",(?![^(]*\))")


def labels(text: str) -> Test | None:
    """Parse a label selector; None for an empty one. Raises ApiError 400."""
    tests = [_label(part.strip()) for part in _SPLIT.split(text) if part.strip()]
    if not tests:
        return None
    return lambda obj: all(test(obj["metadata"].get("labels") or {}) for test in tests)


def _label(part: str) -> Callable[[dict[str, str]], bool]:
    found = _SET.match(part)
    if found:
        key, values = found[1], {value.strip() for value in found[3].split(",")}
        if found[2] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    for operator in ("!=", "==", "="):
        key, separator, value = part.partition(operator)
        if separator:
            key, value = key.strip(), value.strip()
            if operator == "!=":
                return lambda labels: labels.get(key) != value
            return lambda labels: labels.get(key) == value
    if part.startswith("!"):
        absent = part[1:].strip()
        return lambda labels: absent not in labels
    if re.search(r"\s", part):
        raise bad_request(f"unable to parse requirement: {part!r}")
    return lambda labels: part in labels


def fields(text: str) -> Test | None:
    """Parse a field selector; None for an empty one. Raises ApiError 400."""
    tests = [_field(part.strip()) for part in text.split(",") if part.strip()]
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def _field(part: str) -> Test:
    for operator in ("!=", "==", "="):
        path, separator, value = part.partition(operator)
        if separator:
            wanted, steps = value.strip(), path.strip().split(".")
            negated = operator == "!="
            return lambda obj: (_at(obj, steps) == wanted) != negated
    raise bad_request(f"invalid field selector: {part!r}")


def _at(value: Any, steps: list[str]) -> str:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return "" if value is None else str(value)
