"""Causes of invalid objects, in the words of Kubernetes' messages."""

from __future__ import annotations

from collections.abc import Iterable
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
