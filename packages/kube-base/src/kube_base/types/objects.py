"""Kubernetes objects as decoded from JSON, and their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as decoded from JSON."""

ReadOnlyObject = Mapping[str, Any]
"""A Kubernetes object that its holder must not change."""

Schema = dict[str, Any]
"""An OpenAPI schema in the vocabulary of CustomResourceDefinitions."""

ObjectName = tuple[str, str]
"""Namespace and name of an object."""


def copy_value(value: Any) -> Any:
    """Return a copy of a decoded JSON value, which shares no list or dict with it."""
    if isinstance(value, dict):
        return {key: copy_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_value(item) for item in value]
    return value
