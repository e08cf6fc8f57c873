"""Fields that claims, classes and slices of devices have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kube_api_server.builtin.device_selectors import compile_selector
from kube_api_server.causes import (
    check_length,
    check_number,
    check_unique,
    invalid_cause,
    required_cause,
    unsupported_cause,
)
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import (
    SUBDOMAIN,
    SUBDOMAIN_RULE,
    check_label,
)

MAX_ITEMS = 32
"""Maximum number of requests, constraints, configurations and selectors."""
EFFECTS = ("NoExecute", "NoSchedule")
"""Effects of taints of devices."""
_MAX_DRIVER = 63
_MAX_IDENTIFIER = 32
_MAX_TEXT_BYTES = 10 * 1024
"""Maximum size of an expression, and of the parameters of a driver."""

_IDENTIFIER_PATTERN = "[A-Za-z_][A-Za-z0-9_]*"
_IDENTIFIER = re.compile(_IDENTIFIER_PATTERN)
_IDENTIFIER_RULE = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    f"validation is '{_IDENTIFIER_PATTERN}')"
)


def check_names(field: str, items: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    """Yield the violations of names of items, which are unique."""
    for index, item in enumerate(items):
        yield from check_label(f"{field}[{index}].name", item.get("name") or "")
    yield from check_unique(field, (item.get("name") or "" for item in items), "name")


def check_driver(field: str, name: str) -> Iterator[Cause]:
    """Yield the violations of the name of a driver, or of the domain of an attribute."""
    if not name:
        yield required_cause(field)
    yield from check_length(field, len(name.encode()), _MAX_DRIVER)
    if not SUBDOMAIN.fullmatch(name.lower()):
        yield invalid_cause(field, name, SUBDOMAIN_RULE)


def check_attribute_name(field: str, name: str) -> Iterator[Cause]:
    """Yield the violations of the name of an attribute or capacity, which may have a domain."""
    parts = name.split("/")
    if not name:
        yield required_cause(field, "name required")
    elif len(parts) <= 2:
        if len(parts) == 2 and not parts[0]:
            yield required_cause(field, "the domain must not be empty")
        elif len(parts) == 2:
            yield from check_driver(field, parts[0])
        if len(parts) == 2 and not parts[1]:
            yield required_cause(field, "the name must not be empty")
        else:
            yield from _identifier(field, parts[-1])


def _identifier(field: str, name: str) -> Iterator[Cause]:
    yield from check_length(field, len(name.encode()), _MAX_IDENTIFIER)
    if not _IDENTIFIER.fullmatch(name):
        yield invalid_cause(field, name, _IDENTIFIER_RULE)


def check_selectors(field: str, selectors: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    """Yield the violations of selectors of devices."""
    yield from check_number(field, selectors, MAX_ITEMS)
    for index, selector in enumerate(selectors):
        place = f"{field}[{index}].cel"
        if (cel := selector.get("cel")) is None:
            yield required_cause(place)
        else:
            yield from _expression(f"{place}.expression", cel.get("expression") or "")


def _expression(field: str, text: str) -> Iterator[Cause]:
    if (size := len(text.encode())) > _MAX_TEXT_BYTES:
        yield from check_length(field, size, _MAX_TEXT_BYTES)
    elif why := compile_selector(text):
        yield invalid_cause(field, text, why)


def check_configuration(field: str, configuration: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the violations of a configuration of a driver."""
    opaque = configuration.get("opaque")
    if opaque is None:
        yield required_cause(f"{field}.opaque")
        return
    yield from check_driver(f"{field}.opaque.driver", opaque.get("driver") or "")
    parameters, place = opaque.get("parameters"), f"{field}.opaque.parameters"
    if parameters is None:
        yield required_cause(place)
    else:
        yield from check_length(place, len(msgspec.json.encode(parameters)), _MAX_TEXT_BYTES)


def check_effect(field: str, effect: str) -> Iterator[Cause]:
    """Yield the violation of an effect of a taint that is not supported."""
    if effect not in EFFECTS:
        yield unsupported_cause(field, effect, EFFECTS)
