"""Validation of values by the keywords of their schema, with Kubernetes' messages."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from kube_api_server.causes import invalid_cause, required_cause, unsupported_cause
from kube_api_server.errors import Cause
from kube_api_server.formatting import quote_go
from kube_api_server.structural import list_keys
from kube_api_server.structural.formats import STRING_FORMATS
from kube_api_server.structural.schema_node import SchemaNode
from kube_base.types.quantities import is_quantity

_HEAD = ("apiVersion", "kind", "metadata")
_ABSENT = object()


def validate_object(
    node: SchemaNode, new: dict[str, Any], old: dict[str, Any] | None
) -> list[Cause]:
    """Return the violations of a complete object."""
    causes: list[Cause] = []
    body = {key: value for key, value in new.items() if key not in _HEAD}
    before = _ABSENT
    if old is not None:
        before = {key: value for key, value in old.items() if key not in _HEAD}
    _value(node, body, before, "", causes)
    return causes


def _value(node: SchemaNode, value: Any, old: Any, path: str, causes: list[Cause]) -> None:
    if old is not _ABSENT and value == old:
        # Unchanged values are not validated again: the schema may have become stricter since.
        return
    if value is None:
        if node.type and not node.nullable:
            causes.append(_mistyped(path, node.type, "null", "null"))
        return
    if node.python_types and not _fits(node, value):
        causes.append(_mistyped(path, node.type, _json_type(value), value))
    elif node.format in STRING_FORMATS and not node.type and value.__class__ is int:
        causes.append(_mistyped(path, node.format, "int64", "int64"))
    if node.combined:
        _combined(node, value, path, causes)
    kind = value.__class__
    if kind is str:
        _string(node, value, path, causes)
    elif kind is dict:
        if node.enum is not None:
            _enum(node, value, path, causes)
        _object(node, value, old, path, causes)
        return
    elif kind is list:
        _array(node, value, old, path, causes)
    elif node.numeric and kind is not bool:
        _number(node, value, path, causes)
    if node.enum is not None:
        _enum(node, value, path, causes)


def _fits(node: SchemaNode, value: Any) -> bool:
    if value.__class__ is bool:
        return node.type == "boolean"
    if isinstance(value, node.python_types):
        return True
    return (
        isinstance(value, float)
        and (node.type == "integer" or node.int_or_string)
        and value.is_integer()
    )


def _json_type(value: Any) -> str:
    """Return the OpenAPI name of the type of a JSON value."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
    return names.get(value.__class__, "number")


def _mistyped(path: str, expected: str, actual: str, value: Any) -> Cause:
    why = f"{path} in body must be of type {expected}: {quote_go(actual)}"
    text = quote_go(actual) if not isinstance(value, str) or expected != actual else quote_go(value)
    return Cause("FieldValueTypeInvalid", f"Invalid value: {text}: {why}", path or "<nil>")


def _invalid(path: str, value: Any, why: str) -> Cause:
    return invalid_cause(path or "<nil>", value, f"{path} in body {why}")


def _general(message: str) -> Cause:
    return invalid_cause("<nil>", "", message)


def _string(node: SchemaNode, value: str, path: str, causes: list[Cause]) -> None:
    if node.max_length is not None and len(value) > node.max_length:
        message = f"Too long: may not be more than {node.max_length} bytes"
        causes.append(Cause("FieldValueTooLong", message, path))
    elif node.min_length is not None and len(value) < node.min_length:
        why = f"should be at least {node.min_length} chars long"
        causes.append(_invalid(path, value, why))
    elif node.pattern is not None and not node.pattern.search(value):
        causes.append(_invalid(path, value, f"should match '{node.schema['pattern']}'"))
    elif node.quantity and not is_quantity(value):
        causes.append(_invalid(path, value, "must be a quantity, such as 500m or 1Gi"))
    if node.format:
        test = STRING_FORMATS.get(
            node.format.replace("-", "") if node.format == "date-time" else node.format
        )
        if test is not None and not test(value):
            why = f"{path} in body must be of type {node.format}: {quote_go(value)}"
            message = f"Invalid value: {quote_go(value)}: {why}"
            causes.append(Cause("FieldValueTypeInvalid", message, path))


def _number(node: SchemaNode, value: float, path: str, causes: list[Cause]) -> None:
    schema = node.schema
    most, least, factor = schema.get("maximum"), schema.get("minimum"), schema.get("multipleOf")
    if factor and not math.isclose(value / factor, round(value / factor), abs_tol=1e-9):
        causes.append(_invalid(path, value, f"should be a multiple of {factor:g}"))
    if most is not None:
        if schema.get("exclusiveMaximum") and value >= most:
            causes.append(_invalid(path, value, f"should be less than {_limit(most)}"))
        elif value > most:
            causes.append(_invalid(path, value, f"should be less than or equal to {_limit(most)}"))
    if least is not None:
        if schema.get("exclusiveMinimum") and value <= least:
            causes.append(_invalid(path, value, f"should be greater than {_limit(least)}"))
        elif value < least:
            why = f"should be greater than or equal to {_limit(least)}"
            causes.append(_invalid(path, value, why))


def _limit(value: float) -> str:
    """Format a limit as Go prints a float64 with %v: with an exponent from 1e+21 on."""
    text = f"{value:g}" if abs(value) >= 1e21 else repr(float(value))
    return text.removesuffix(".0")


def _enum(node: SchemaNode, value: Any, path: str, causes: list[Cause]) -> None:
    allowed = node.enum or ()
    if value in allowed:
        return
    supported = (
        item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in allowed
    )
    causes.append(unsupported_cause(path, value, supported))


def _array(node: SchemaNode, value: list[Any], old: Any, path: str, causes: list[Cause]) -> None:
    items = node.items
    if items is not None:
        former = list_keys.FormerItems(node, old, _ABSENT)
        for index, item in enumerate(value):
            _value(items, item, former.counterpart(item), f"{path}[{index}]", causes)
    if node.min_items is not None and len(value) < node.min_items:
        why = f"should have at least {node.min_items} items"
        causes.append(_invalid(path, len(value), why))
    if node.max_items is not None and len(value) > node.max_items:
        causes.append(_too_many(path, len(value), node.max_items))
    if node.unique:
        encoded = [msgspec.json.encode(item, order="sorted") for item in value]
        if len(set(encoded)) < len(encoded):
            causes.append(_invalid(path, "", "shouldn't contain duplicates"))


def _too_many(path: str, count: int, most: int) -> Cause:
    items = "item" if most == 1 else "items"
    message = f"Too many: {count}: must have at most {most} {items}"
    return Cause("FieldValueTooMany", message, path)


def _object(
    node: SchemaNode, value: dict[str, Any], old: Any, path: str, causes: list[Cause]
) -> None:
    if node.min_properties is not None and len(value) < node.min_properties:
        why = f"should have at least {node.min_properties} properties"
        causes.append(_invalid(path, len(value), why))
    if node.max_properties is not None and len(value) > node.max_properties:
        causes.append(_too_many(path, len(value), node.max_properties))
    before = old if isinstance(old, dict) else {}
    children = node.children
    additional = node.additional
    for name, item in value.items():
        if node.embedded and name in _HEAD:
            continue
        inner = children.get(name) or node.property(name) or additional
        if inner is not None:
            field = f"{path}.{name}" if path else name
            _value(inner, item, before.get(name, _ABSENT), field, causes)
    for name in node.required:
        # The head of the complete object is always present, and is not part of `value`.
        if name not in value and (path or name not in _HEAD):
            field = f"{path}.{name}" if path else name
            causes.append(required_cause(field))


def _combined(node: SchemaNode, value: Any, path: str, causes: list[Cause]) -> None:
    if node.any_of and not node.int_or_string:
        failures = _attempts(node.any_of, value, path)
        if all(failures):
            causes.append(_general(f"{quote_go(path)} must validate at least one schema (anyOf)"))
            causes += _nearest(node.any_of, failures, value)
    if node.one_of:
        failures = _attempts(node.one_of, value, path)
        valid = sum(not failure for failure in failures)
        if valid != 1:
            count = f"Found {valid} valid alternatives" if valid else "Found none valid"
            message = f"{quote_go(path)} must validate one and only one schema (oneOf). {count}"
            causes.append(_general(message))
            if not valid:
                causes += _nearest(node.one_of, failures, value)
    if node.all_of:
        failures = _attempts(node.all_of, value, path)
        if any(failures):
            causes.append(_general(f"{quote_go(path)} must validate all the schemas (allOf)"))
            causes += [cause for failure in failures for cause in failure]
    if node.none_of is not None and not _attempts([node.none_of], value, path)[0]:
        causes.append(_general(f"{quote_go(path)} must not validate the schema (not)"))


def _nearest(nodes: list[SchemaNode], failures: list[list[Cause]], value: Any) -> list[Cause]:
    """Return the failures of the schema with most checks of the value; the first of equals."""
    counts = [_checks(node, value) for node in nodes]
    return failures[counts.index(max(counts))]


def _checks(node: SchemaNode, value: Any) -> int:
    """Return the number of schemas that apply within a value."""
    count = 1 + sum(_checks(inner, value) for inner in (*node.any_of, *node.one_of, *node.all_of))
    if isinstance(value, dict):
        for name, item in value.items():
            inner = node.property(name)
            if inner is not None:
                count += _checks(inner, item)
    elif isinstance(value, list) and node.items is not None:
        count += sum(_checks(node.items, item) for item in value)
    return count


def _attempts(nodes: list[SchemaNode], value: Any, path: str) -> list[list[Cause]]:
    attempts = []
    for node in nodes:
        causes: list[Cause] = []
        _value(node, value, _ABSENT, path, causes)
        attempts.append(causes)
    return attempts
