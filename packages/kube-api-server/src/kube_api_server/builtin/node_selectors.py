"""Validation of selectors of Nodes by terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube_api_server.causes import forbidden_cause, invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import (
    SUBDOMAIN,
    SUBDOMAIN_RULE,
    check_label_name,
    check_label_value,
)

_NO_OPERATOR = "not a valid selector operator"


def check_node_selector(field: str, selector: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the violations of a selector of Nodes."""
    terms, place = selector.get("nodeSelectorTerms") or [], f"{field}.nodeSelectorTerms"
    if not terms:
        yield required_cause(place, "must have at least one node selector term")
    for index, term in enumerate(terms):
        for number, requirement in enumerate(term.get("matchExpressions") or ()):
            yield from _labels(f"{place}[{index}].matchExpressions[{number}]", requirement)
        for number, requirement in enumerate(term.get("matchFields") or ()):
            yield from _fields(f"{place}[{index}].matchFields[{number}]", requirement)


def _labels(field: str, requirement: Mapping[str, Any]) -> Iterator[Cause]:
    values, place = requirement.get("values") or [], f"{field}.values"
    match requirement.get("operator"):
        case "In" | "NotIn":
            if not values:
                yield required_cause(place, "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden_cause(place, why)
        case "Gt" | "Lt":
            if len(values) != 1:
                why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield required_cause(place, why)
        case operator:
            yield invalid_cause(f"{field}.operator", operator or "", _NO_OPERATOR)
    yield from check_label_name(requirement.get("key") or "", f"{field}.key")
    for index, value in enumerate(values):
        yield from check_label_value(value, f"{place}[{index}]")


def _fields(field: str, requirement: Mapping[str, Any]) -> Iterator[Cause]:
    values, operator = requirement.get("values") or [], requirement.get("operator") or ""
    if operator not in ("In", "NotIn"):
        yield invalid_cause(f"{field}.operator", operator, _NO_OPERATOR)
    elif len(values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required_cause(f"{field}.values", why)
    if (key := requirement.get("key") or "") != "metadata.name":
        yield invalid_cause(f"{field}.key", key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        if not SUBDOMAIN.fullmatch(value):
            yield invalid_cause(f"{field}.values[{index}]", value, SUBDOMAIN_RULE)
