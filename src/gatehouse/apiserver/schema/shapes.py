"""Terse builders of schemas."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

ANY: Schema = {"x-kubernetes-preserve-unknown-fields": True}
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
HOSTNAME = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def string(**rest: Any) -> Schema:
    """Give a string; ``min``, ``max`` are lengths."""
    return _build("string", rest, {"min": "minLength", "max": "maxLength"})


def integer(**rest: Any) -> Schema:
    """Give an integer; ``min``, ``max`` are values."""
    return _build("integer", rest, {"min": "minimum", "max": "maximum"})


def boolean(**rest: Any) -> Schema:
    """Give a boolean."""
    return _build("boolean", rest, {})


def array(items: Schema, *, key: tuple[str, ...] = (), **rest: Any) -> Schema:
    """Give a list; with ``key`` its items must differ in these fields."""
    schema = _build("array", rest, {"min": "minItems", "max": "maxItems"})
    schema["items"] = items
    if key:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = list(key)
    return schema


def record(required: str = "", /, *, open_: bool = False, **properties: Schema) -> Schema:
    """Give an object; ``required`` names fields, ``open_`` keeps fields that are not named.

    A property whose name is a Python keyword is written with a trailing underscore.
    """
    named = {name.rstrip("_"): schema for name, schema in properties.items()}
    schema: Schema = {"type": "object", "properties": named}
    if required:
        schema["required"] = required.split()
    if open_:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def mapping(values: Schema) -> Schema:
    """Give a map with any keys."""
    return {"type": "object", "additionalProperties": values}


def choice(*values: str, **rest: Any) -> Schema:
    """Give a string of a set."""
    return string(enum=list(values), **rest)


def _build(kind: str, rest: dict[str, Any], names: dict[str, str]) -> Schema:
    return {"type": kind, **{names.get(key, key): value for key, value in rest.items()}}
