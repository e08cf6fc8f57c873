"""Parser of label and field selectors. Returns predicates."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

from kube_api_server.errors import bad_request
from kube_api_server.objects.served_resource import ServedResource
from kube_base.types import request_info
from kube_base.types.objects import Object

_Test = Callable[[Object], bool]
Term = TypeVar("Term")

MAX_TERMS = 100
"""Requirements of one selector. Each is compared with every object and every change."""

_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^)]*)\)$")
_SEPARATOR = re.compile(r"[(),]")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


@functools.lru_cache(1024)
def parse_label_selector(text: str) -> _Test | None:
    """Parse a label selector; None for an empty one. Raises ApiError 400."""
    parts = _limited(text, _terms(text))
    tests = [_label(part) for part in parts]
    if not tests:
        return None
    return lambda obj: all(test(obj["metadata"].get("labels") or {}) for test in tests)


def _terms(text: str) -> list[str]:
    """Split a label selector at the commas outside of the parentheses of value lists."""
    terms: list[str] = []
    end, in_list = len(text), False
    for separator in reversed(list(_SEPARATOR.finditer(text))):
        if separator[0] == ",":
            if not in_list:
                terms.append(text[separator.end() : end])
                end = separator.start()
        else:
            in_list = separator[0] == ")"
    terms.append(text[:end])
    return [term.strip() for term in reversed(terms) if term.strip()]


def _limited(text: str, terms: list[Term]) -> list[Term]:
    """Return the terms of a selector. Raises ApiError 400 if there are too many."""
    if len(terms) > MAX_TERMS:
        raise bad_request(f"invalid selector {text[:100]!r}: more than {MAX_TERMS} requirements")
    return terms


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


def fields(text: str, served: ServedResource) -> _Test | None:
    """Parse a field selector; None for an empty one. Raises ApiError 400."""
    try:
        terms = _limited(text, request_info.field_terms(text))
    except request_info.SelectorError as error:
        message = f"invalid selector: '{text}'; can't understand '{error}'"
        raise bad_request(message) from error
    tests = [_field(*term, served) for term in terms]
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def _field(path: str, operator: str, expected: str, served: ServedResource) -> _Test:
    known = ("metadata.name", "metadata.namespace", *served.selectable)
    if path not in known:
        supported = ", ".join(f'"{name}"' for name in known)
        raise bad_request(f'"{path}" is not a known field selector: only {supported}')
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
