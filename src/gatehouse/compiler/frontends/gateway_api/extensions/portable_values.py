"""Values of fields of portable policies: sizes, durations, counts and attributes of requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from gatehouse.apis import traffic_policies as api
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import (
    ValueProblem,
    parse_count,
)
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import FieldParser
from gatehouse.compiler.frontends.gateway_api.routes import durations
from gatehouse.compiler.ir.settings import Attribute
from kube_base.types.quantities import quantity

V = TypeVar("V")

MAX_BODY_SIZE = "1Ti"

MIN_HEADER_SIZE, MAX_HEADER_SIZE = "4Ki", "128Ki"
"""Limits of the maximum size of headers. Two buffers of the largest size take no more memory than
NGINX uses for headers by default."""

MAX_TIMEOUT = "9999h"
_MAX_SECONDS = 9999 * 3600.0

_CLIENT = "ClientAddress"
_PREFIXES = {"Header": "http_", "QueryParameter": "arg_", "Cookie": "cookie_"}
RATE_KEYS = (_CLIENT, "Header", "QueryParameter")
"""Attributes that every proxy counts requests by."""

HASH_KEYS = (_CLIENT, *_PREFIXES)

HEADER_PATTERN, NAME_PATTERN = r"[A-Za-z0-9-]{1,128}", r"[A-Za-z0-9_]{1,128}"
"""Names of headers, and of query parameters and cookies, that every proxy reads."""


def whole_bytes(value: str | int | None, least: str = "0", most: str = MAX_BODY_SIZE) -> int | None:
    """Return a quantity in whole bytes; None for None. Raises ValueProblem."""
    if value is None:
        return None
    try:
        size = quantity(str(value))
    except ValueError as error:
        raise ValueProblem(f"invalid value {value!r}: must be a quantity such as 10Mi") from error
    if not quantity(least) <= size <= quantity(most) or size != int(size):
        raise ValueProblem(f"must be a whole number of bytes from {least} to {most}")
    return int(size)


def header_bytes(value: str | int | None) -> int | None:
    """Return the maximum size of headers in bytes; None for None. Raises ValueProblem."""
    return whole_bytes(value, MIN_HEADER_SIZE, MAX_HEADER_SIZE)


def duration_seconds(text: str | None) -> float | None:
    """Return a duration (GEP-2257) in seconds; None for None. Raises ValueProblem."""
    if text is None:
        return None
    seconds = durations.parse_duration(text)
    if seconds is None:
        raise ValueProblem(f"invalid value {text!r}: must be a duration such as 500ms or 1m30s")
    if seconds > _MAX_SECONDS:
        raise ValueProblem(f"must not be longer than {MAX_TIMEOUT}")
    return seconds


def positive_seconds(text: str | None) -> float | None:
    """Return a duration that is not 0, in seconds; None for None. Raises ValueProblem."""
    seconds = duration_seconds(text)
    if seconds == 0:
        raise ValueProblem("must be greater than 0")
    return seconds


def positive_count(number: int | None) -> int | None:
    """Return a count that is not 0; None for None. Raises ValueProblem."""
    if number == 0:
        raise ValueProblem("must be greater than 0")
    return parse_count(number)


def named_value(
    parse: FieldParser, field: str, values: Mapping[str, V], name: str | None
) -> V | None:
    """Return the value of a name, or record a problem; None for None."""
    if name is not None and name not in values:
        parse.problems.append(f"spec.{field}: must be one of {', '.join(values)}")
    return values.get(name) if name is not None else None


def request_attribute(
    parse: FieldParser,
    field: str,
    types: tuple[str, ...],
    spec: api.RequestAttributeSpec | None,
) -> Attribute | None:
    """Return a request attribute, or record a problem; None for None."""
    if spec is None:
        return None
    if spec.type not in types:
        parse.problems.append(f"spec.{field}.type: must be one of {', '.join(types)}")
    if spec.type == _CLIENT:
        if spec.name:
            parse.problems.append(f"spec.{field}.name: may not be set for {_CLIENT}")
        return Attribute("binary_remote_addr")
    pattern = HEADER_PATTERN if spec.type == "Header" else NAME_PATTERN
    if not re.fullmatch(pattern, spec.name):
        parse.problems.append(f"spec.{field}.name: must match {pattern}")
    name = spec.name.lower().replace("-", "_") if spec.type == "Header" else spec.name
    return Attribute(_PREFIXES.get(spec.type, "") + name)
