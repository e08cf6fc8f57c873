"""Schemas of built-in types, in the vocabulary of CustomResourceDefinitions.

A type that contains itself has a schema that contains itself. Walk values, never schemas.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kube_base.types import quantities
from kube_base.types.builtin_types import types
from kube_base.types.builtin_types.constraints import LIMITS
from kube_base.types.builtin_types.types import Type, TypeField
from kube_base.types.objects import Schema

_SCALARS: dict[str, Schema] = {
    "string": {"type": "string"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number"},
    "bool": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "intstr": {"x-kubernetes-int-or-string": True},
    # The expression that Kubernetes' own error message names.
    "quantity": {
        "x-kubernetes-int-or-string": True,
        "pattern": r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$",
        quantities.KEYWORD: True,
    },
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "fields": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}


STRUCT = "x-builtin-struct"
"""Marks a field that exists within every object, even if empty (a struct or a list in Go)."""

ZERO = "x-builtin-zero"
"""Marks a field whose default is the zero value of its type in Go. That of times, lists and maps is
null."""

OMITTED = "x-builtin-omitted"
"""Marks a field that Kubernetes does not write if it has its zero value, such as an empty list."""

NULL_ITEM = "x-builtin-null-item"
"""Value of the items of a list or map that are null: the zero value of their type in Go."""

_ZERO_NUMBERS: dict[str, int | bool] = {"int32": 0, "int64": 0, "bool": False}
"""Defaults of absent fields that are required: Kubernetes decodes them into Go's zero values."""

_NO_ZERO = object()


@functools.cache
def schema_of(name: str, *, of_status: bool = False) -> Schema:
    """Return the schema of a type, merged with :mod:`constraints`.

    Kubernetes does not validate absent texts and objects in statuses, and they have zero values.
    """
    schema: Schema = {}
    _BEING_MADE[name, of_status] = schema
    _fill(schema, types.types_by_name()[name], of_status=of_status)
    del _BEING_MADE[name, of_status]
    return schema


_BEING_MADE: dict[tuple[str, bool], Schema] = {}


def _fill(schema: Schema, type_: Type, *, of_status: bool) -> None:
    if type_.open:
        schema["x-kubernetes-preserve-unknown-fields"] = True
        return
    schema["type"] = "object"
    if type_.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    required = [field for field in type_.fields.values() if field.required]
    if of_status:
        # Kubernetes decodes absent times and lists as null.
        required = [field for field in required if field.type in ("string", *_ZERO_NUMBERS)]
    if required:
        schema["required"] = [field.name for field in required]
    # A type that contains itself copies a schema that is still empty, so its properties must be the
    # same dict in all copies.
    properties = schema["properties"] = {}
    for name, field in type_.fields.items():
        limits = LIMITS.get(f"{type_.name}.{name}", {})
        properties[name] = _field(field, limits, of_status=of_status or name == "status")


def _field(field: TypeField, limits: Schema, *, of_status: bool) -> Schema:
    schema = {**_type(field.type, of_status=of_status), **_merging(field), **limits}
    is_struct = field.type in types.types_by_name() and not field.pointer
    if is_struct or (field.required and field.type.startswith(("[]", "{}"))):
        schema[STRUCT] = True
    if not field.pointer and _is_omitted(field, has_default="default" in limits):
        schema[OMITTED] = True
    if "default" not in schema and field.default is not None:
        schema["default"] = field.default
    if "default" in schema:
        return schema
    if is_struct:
        return schema | {"default": {}, ZERO: True}
    zero = _zero(field, of_status=of_status or "nullable" in limits)
    if zero is _NO_ZERO:
        return schema
    return schema | {"default": zero, ZERO: True} | ({"nullable": True} if zero is None else {})


def _is_omitted(field: TypeField, *, has_default: bool) -> bool:
    """Return whether the zero value of a field, which is no pointer, is the same as its absence."""
    if field.type.startswith(("[]", "{}")):
        return True
    scalar = field.type in ("string", "bytes", "double", *_ZERO_NUMBERS)
    return scalar and not field.required and (has_default or not field.always)


def _zero(field: TypeField, *, of_status: bool) -> Any:
    """Return the value that Kubernetes writes if a field is absent.

    A required field has one only if its absence is valid.
    """
    if field.pointer:
        return _NO_ZERO
    if field.required and field.type in _ZERO_NUMBERS:
        return _ZERO_NUMBERS[field.type]
    if field.required and not of_status:
        return _NO_ZERO
    if field.type == "string" and (field.required or field.always):
        return ""
    return _ZERO_NUMBERS.get(field.type) if field.always else _NO_ZERO


def _merging(field: TypeField) -> Schema:
    """Return the keywords for the merge of lists and maps."""
    keywords: Schema = {}
    if field.list_keys:
        keywords["x-kubernetes-list-map-keys"] = list(field.list_keys)
    if field.merge:
        lists = field.type.startswith("[]")
        keywords["x-kubernetes-list-type" if lists else "x-kubernetes-map-type"] = field.merge
    if field.patch_key is not None:
        keywords["x-kubernetes-patch-strategy"] = "merge"
        if field.patch_key:
            keywords["x-kubernetes-patch-merge-key"] = field.patch_key
    if field.retain_keys:
        strategy = [keywords["x-kubernetes-patch-strategy"]] if keywords else []
        keywords["x-kubernetes-patch-strategy"] = ",".join([*strategy, "retainKeys"])
    return keywords


def _type(text: str, *, of_status: bool) -> Schema:
    if text.startswith("[]"):
        items = _type(text[2:], of_status=of_status)
        return {"type": "array", "items": items, **_null_item(text[2:])}
    if text.startswith("{}"):
        values = _type(text[2:], of_status=of_status)
        return {"type": "object", "additionalProperties": values, **_null_item(text[2:])}
    if text in types.SCALARS:
        return _SCALARS[text]
    unfinished = _BEING_MADE.get((text, of_status))
    return unfinished if unfinished is not None else schema_of(text, of_status=of_status)


def _null_item(text: str) -> Schema:
    """Return the keyword for null items of a type."""
    if text.startswith("[]"):
        return {NULL_ITEM: []}
    if text.startswith("{}") or text in types.types_by_name():
        return {NULL_ITEM: {}}
    zeros = {"string": "", "bytes": "", "quantity": "0", **_ZERO_NUMBERS}
    return {NULL_ITEM: zeros[text]} if text in zeros else {}


def reference_schema(name: str, refer: Callable[[str], Schema]) -> Schema:
    """Return the schema of a type, with references to other types made by `refer`."""
    type_ = types.types_by_name()[name]
    if type_.open:
        return {"x-kubernetes-preserve-unknown-fields": True}
    required = [field.name for field in type_.fields.values() if field.required]
    properties: Schema = {}
    for field in type_.fields.values():
        schema = _referring(field.type, refer)
        extra = {**_merging(field), **LIMITS.get(f"{name}.{field.name}", {})}
        if extra.setdefault("default", field.default) is None:
            del extra["default"]
        if "$ref" in schema and extra:
            schema = {"allOf": [schema]}
        properties[field.name] = {**schema, **extra}
    object_schema: Schema = {"type": "object", "properties": properties}
    if required:
        object_schema["required"] = required
    if type_.atomic:
        object_schema["x-kubernetes-map-type"] = "atomic"
    return object_schema


def _referring(text: str, refer: Callable[[str], Schema]) -> Schema:
    if text.startswith("[]"):
        return {"type": "array", "items": _referring(text[2:], refer)}
    if text.startswith("{}"):
        return {"type": "object", "additionalProperties": _referring(text[2:], refer)}
    if text in ("intstr", "quantity"):
        return {"type": "string", "format": "int-or-string"}
    return _SCALARS[text] if text in types.SCALARS else refer(text)
