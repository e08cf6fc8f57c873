"""Validation of schemas of CRDs: structural rules, defaults and CEL rules.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import re2

from kube_api_server.causes import (
    forbidden_cause,
    invalid_cause,
    required_cause,
    unsupported_cause,
)
from kube_api_server.errors import Cause
from kube_api_server.structural import prune_default, validate
from kube_api_server.structural.rule_validation import Place, RuleChecks
from kube_api_server.structural.schema_node import SchemaNode
from kube_base.runtime.quiet_re2 import quiet_options
from kube_base.types.objects import Schema, copy_value

_TYPES = ("object", "array", "string", "integer", "number", "boolean")
_FORBIDDEN = ("$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id")


def check_schema(schema: Schema, path: str) -> Iterator[Cause]:
    """Yield the violations of the schema of a version."""
    if schema.get("type") != "object":
        yield invalid_cause(f"{path}.type", schema.get("type", ""), "must be object at the root")
    rules = RuleChecks()
    yield from _part(schema, Place(path, root=True), rules)
    yield from rules.check_total(path)


def _part(schema: Any, place: Place, rules: RuleChecks) -> Iterator[Cause]:
    path = place.path
    if not isinstance(schema, dict):
        yield Cause("FieldValueTypeInvalid", "Invalid value: must be an object", path)
        return
    free = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    kind = schema.get("type")
    if not kind and not free:
        holder = "array items" if path.endswith(".items") else "object fields"
        yield required_cause(f"{path}.type", f"must not be empty for specified {holder}")
    if kind and kind not in _TYPES:
        yield unsupported_cause(f"{path}.type", str(kind), sorted(_TYPES))
    for key in _FORBIDDEN:
        if schema.get(key):
            yield forbidden_cause(f"{path}.{key}", f"{key} is not supported")
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden_cause(f"{path}.uniqueItems", why)
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield required_cause(f"{path}.items", "must be specified")
    yield from _pattern(schema, path)
    yield from _list_type(schema, path)
    yield from _default(schema, path)
    yield from rules.check(schema, place)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _part(inner, place.inside(schema, f"properties[{name}]"), rules)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _part(schema[key], place.inside(schema, key), rules)


def _pattern(schema: Schema, path: str) -> Iterator[Cause]:
    pattern = schema.get("pattern") or ""
    try:
        re2.compile(pattern, quiet_options())
    except re2.error as error:
        why = f"must be a valid regular expression, but isn't: {error}"
        yield invalid_cause(f"{path}.pattern", pattern, why)


def _list_type(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.get("x-kubernetes-list-type") != "map":
        return
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if not keys:
        why = "must not be empty if x-kubernetes-list-type is map"
        yield required_cause(f"{path}.x-kubernetes-list-map-keys", why)
    items = schema.get("items") or {}
    for index, key in enumerate(keys):
        if key not in (items.get("properties") or {}):
            field = f"{path}.x-kubernetes-list-map-keys[{index}]"
            yield invalid_cause(field, key, "entries must all be names of item properties")


def _default(schema: Schema, path: str) -> Iterator[Cause]:
    default = schema.get("default")
    if default is None:
        return
    node = SchemaNode({key: value for key, value in schema.items() if key != "default"})
    wrapper = {"default": copy_value(default)}
    preparation = prune_default.Preparation()
    preparation.prepare_object(SchemaNode({"properties": {"default": node.schema}}), wrapper)
    for name in preparation.unknown:
        why = f"must not have unknown fields: {name}"
        yield invalid_cause(f"{path}.default", default, why)
    holder = SchemaNode({"properties": {"default": node.schema}})
    for cause in validate.validate_object(holder, wrapper, None):
        field = f"{path}.{cause.field}"
        yield Cause(cause.reason, cause.message, field)
