"""Sizes that values of a schema may have, for estimates of the cost of CEL rules.

Sizes follow from the limits in a schema and from the largest request:
https://kubernetes.io/docs/reference/using-api/cel/#resource-constraints
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kube_api_server.structural.cel import property_names
from kube_api_server.structural.cel_types import OF_RESOURCES
from kube_base.types.objects import Schema

MAX_REQUEST_BYTES = 3 * 1024 * 1024
"""Size of the largest request for these estimates, as in Kubernetes."""

ITEMS, KEYS, VALUES = "@items", "@keys", "@values"
"""Steps of a path from a list to its items, and from a map to its keys and values."""

_EMPTY_BYTES = 2
"""Size of an empty string, list or object in JSON."""

_LONGEST_TIME = 32
_TIMES = {"duration": (_LONGEST_TIME, 3), "date": (12, 12), "date-time": (_LONGEST_TIME, 21)}
"""Largest and smallest size in bytes of the formats of times."""

_SCALARS = {"boolean": 4, "number": 1, "integer": 1}
"""Smallest size in bytes of types that have no length."""


class Declared(msgspec.Struct, frozen=True):
    """Sizes of the values of a part of a schema."""

    longest: int
    """Maximum number of characters, items or entries; 0 for values without a length."""
    smallest: int
    """Minimum size in bytes of a value in JSON."""
    fields: dict[str, Declared] = {}
    items: Declared | None = None
    """Sizes of the items of a list, or of the values of a map."""
    keys: Declared | None = None

    def at(self, path: Iterable[str]) -> Declared | None:
        """Return the sizes at a path; None if the schema does not declare them."""
        current: Declared | None = self
        for step in path:
            if current is None:
                return None
            if step in (ITEMS, VALUES):
                current = current.items
            elif step == KEYS:
                current = current.keys
            else:
                current = current.fields.get(step)
        return current

    @property
    def largest_number(self) -> int:
        """Maximum number of such values in a request."""
        return MAX_REQUEST_BYTES // (self.smallest + 1)


_TEXT = Declared(MAX_REQUEST_BYTES - _EMPTY_BYTES, _EMPTY_BYTES)


def declared_sizes(schema: Schema, *, resource: bool = False) -> Declared | None:
    """Return the sizes of the values of a schema; None if it has no type for CEL.

    `resource` is set at the root of a schema.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return Declared(_length(schema), 1)
    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return _map(schema)
        case "object":
            return _object(schema, resource or bool(schema.get("x-kubernetes-embedded-resource")))
        case "string":
            return _string(schema)
        case kind:
            return Declared(0, _SCALARS[kind]) if kind in _SCALARS else None


def _list(schema: Schema) -> Declared | None:
    items = declared_sizes(schema.get("items") or {})
    if items is None:
        return None
    most = (MAX_REQUEST_BYTES - _EMPTY_BYTES) // (items.smallest + 1)
    return Declared(_limit(schema, "maxItems", most), _EMPTY_BYTES, items=items)


def _map(schema: Schema) -> Declared | None:
    values = declared_sizes(schema["additionalProperties"])
    if values is None:
        return None
    # A key of two characters at least, quotes, colon and comma.
    most = (MAX_REQUEST_BYTES - _EMPTY_BYTES) // (values.smallest + 6)
    longest = _limit(schema, "maxProperties", most)
    return Declared(longest, _EMPTY_BYTES, items=values, keys=Declared(0, _EMPTY_BYTES))


def _object(schema: Schema, resource: bool) -> Declared:
    properties = {**(schema.get("properties") or {}), **(OF_RESOURCES if resource else {})}
    required = frozenset(schema.get("required") or ())
    smallest = _EMPTY_BYTES
    fields: dict[str, Declared] = {}
    for name, inner in properties.items():
        declared = declared_sizes(inner)
        if declared is None:
            continue
        fields |= dict.fromkeys(property_names(name), declared)
        if name in required and inner.get("default") is None:
            smallest += len(name) + declared.smallest + 4
    return Declared(0, smallest, fields)


def _string(schema: Schema) -> Declared:
    format_ = schema.get("format")
    if format_ in _TIMES:
        return Declared(*_TIMES[format_])
    if format_ == "byte":
        return Declared(_limit(schema, "maxLength", _TEXT.longest), _EMPTY_BYTES)
    if "maxLength" not in schema and schema.get("enum"):
        texts = [value for value in schema["enum"] if isinstance(value, str)]
        return Declared(max((len(text.encode()) for text in texts), default=0), _EMPTY_BYTES)
    return Declared(_length(schema), _EMPTY_BYTES)


def _length(schema: Schema) -> int:
    """Return the maximum length of a string in bytes: a character has up to four."""
    limit = schema.get("maxLength")
    return _TEXT.longest if limit is None else max(limit, 0) * 4


def _limit(schema: Schema, name: str, otherwise: int) -> int:
    limit: Any = schema.get(name)
    return otherwise if limit is None else max(limit, 0)
