"""Schemas of ``spec`` that follow from the views of objects, whose fields have ``msgspec.Meta``."""

from __future__ import annotations

from typing import Any

import msgspec
from openapi_schemas import Schema

from gatehouse.apis.meta import KubernetesObject

_UNUSED = {"title", "allOf", "anyOf", "$ref"}
_EMPTY: tuple[Any, ...] = (None, "", [], {})
"""Defaults of views for fields that an object does not have."""


def spec_schema(view: type[KubernetesObject]) -> Schema:
    """Return the schema of ``spec`` of a kind, with the docstring of its view as description."""
    (schema,), components = msgspec.json.schema_components((view,), ref_template="{name}")
    spec = _inlined(components[schema["$ref"]]["properties"]["spec"], components)
    return spec | {"description": " ".join((view.__doc__ or "").split())}


def _inlined(schema: Schema, components: dict[str, Schema]) -> Schema:
    """Return a schema with the components that it refers to in their places."""
    result: Schema = {}
    for part in (*schema.get("allOf", ()), *schema.get("anyOf", ()), schema):
        if "$ref" in part:
            whole = _inlined(components[part["$ref"]], components)
            # The description of a struct is none of the field that has it.
            result |= {key: value for key, value in whole.items() if key != "description"}
        if part.get("type") != "null":
            result |= {key: value for key, value in part.items() if key not in _UNUSED}
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = _inlined(result[key], components)
    if "properties" in result:
        inner = result["properties"].items()
        result["properties"] = {name: _inlined(field, components) for name, field in inner}
    if "enum" in result:
        result["type"] = "string"
    if result.get("default") in _EMPTY:
        result.pop("default", None)
    if not result.get("required"):
        result.pop("required", None)
    return result
