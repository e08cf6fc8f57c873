"""Parser of label and field selectors. Returns predicates."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from gatehouse.apis import request_info
from gatehouse.apiserver.errors import bad_request
from gatehouse.apiserver.objects.served_resource import ServedResource

Object = dict[str, Any]
Test = Callable[[Object], bool]

_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^)]*)\)$")
_SPLIT = re.compile(r",(?![^(]*\))")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


@functools.lru_cache(1024)
def labels(text: str) -> Test | None:
    """Parse a label selector; None for an empty one. Raises ApiError 400."""
    tests = [_label(part.strip()) for part in _SPLIT.split(text) if part.strip()]
    if not tests:
        return None
    return lambda obj: all(test(obj["metadata"].get("labels") or {}) for test in tests)


def _label(part: str) -> Callable[[dict[str, str]], bool]:
    matched = _SET.match(part)
    if matched:
        key, values = _key(matched[1]), {value.strip() for value in matched[3].split(",")}
        if matched[2] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    for operator in ("!=", "==", "="):
        name, separator, value = part.partition(operator)
        if separator:
            key, expected = _key(name.strip()), _value(value.strip())
            if operator == "!=":
                return lambda labels: labels.get(key) != expected
            return lambda labels: labels.get(key) == expected
    if part.startswith("!"):
        absent = _key(part[1:].strip())
        return lambda labels: absent not in labels
    key = _key(part)
    return lambda labels: key in labels


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise bad_request(f"unable to parse requirement: invalid label key {text!r}")
    return text


def _value(text: str) -> str:
    if not _VALUE.fullmatch(text) or len(text) > 63:
        raise bad_request(f"unable to parse requirement: invalid label value {text!r}")
    return text


def fields(text: str, served: ServedResource) -> Test | None:
    """Parse a field selector; None for an empty one. Raises ApiError 400."""
    try:
        terms = request_info.field_terms(text)
    except request_info.SelectorError as error:
        message = f"invalid selector: '{text}'; can't understand '{error}'"
        raise bad_request(message) from error
    tests = [_field(*term, served) for term in terms]
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def _field(path: str, operator: str, expected: str, served: ServedResource) -> Test:
    known = ("metadata.name", "metadata.namespace", *served.selectable)
    if path not in known:
        shown = ", ".join(f'"{name}"' for name in known)
        raise bad_request(f'"{path}" is not a known field selector: only {shown}')
    steps, negated = path.split("."), operator == "!="
    return lambda obj: (_at(obj, steps) == expected) != negated


def _at(value: Any, steps: list[str]) -> str:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return str(value.get("component", ""))
    return "" if value is None else str(value)
