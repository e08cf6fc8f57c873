"""Causes of invalid objects, in the words of Kubernetes' messages, and checks of any kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from kube_api_server.errors import Cause
from kube_api_server.formatting import format_value, quote_go


def invalid_cause(field: str, value: Any, why: str) -> Cause:
    """Build the cause for an invalid value."""
    return Cause("FieldValueInvalid", f"Invalid value: {format_value(value)}: {why}", field)


def duplicate_cause(field: str, value: Any) -> Cause:
    """Build the cause for a value that may occur only once."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {format_value(value)}", field)


def required_cause(field: str, why: str = "") -> Cause:
    """Build the cause for a missing value."""
    message = f"Required value: {why}" if why else "Required value"
    return Cause("FieldValueRequired", message, field)


def forbidden_cause(field: str, why: str) -> Cause:
    """Build the cause for a field that may not be set or changed."""
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def unsupported_cause(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """Build the cause for a value that is not one of those supported."""
    listing = ", ".join(map(quote_go, supported))
    message = f"Unsupported value: {format_value(value)}: supported values: {listing}"
    return Cause("FieldValueNotSupported", message, field)


def check_number(field: str, items: Sequence[Any], most: int) -> Iterator[Cause]:
    """Yield the violation of a list with too many items."""
    if len(items) > most:
        message = f"Too many: {len(items)}: must have at most {most} items"
        yield Cause("FieldValueTooMany", message, field)


def check_length(field: str, size: int, most: int) -> Iterator[Cause]:
    """Yield the violation of a text that is too long."""
    if size > most:
        yield Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", field)


def check_unique(field: str, values: Iterable[Hashable], key: str = "") -> Iterator[Cause]:
    """Yield the violations of values that occur before in a list, which are those of a `key`."""
    earlier: set[Hashable] = set()
    for index, value in enumerate(values):
        if value in earlier:
            yield duplicate_cause(f"{field}[{index}].{key}" if key else f"{field}[{index}]", value)
        earlier.add(value)
