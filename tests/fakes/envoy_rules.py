"""Envoy's own rules of lengths, read from the annotations of its messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import any_pb2, symbol_database
from google.protobuf.descriptor import FieldDescriptor
from validate import validate_pb2

from gatehouse.dataplane.xds.resources import ResourceSet, XdsResource

_BOUNDS = ("min_len", "max_len", "min_bytes", "max_bytes", "min_items", "max_items", "max_pairs")


def violations(resources: ResourceSet) -> list[str]:
    """Return each field of any resource that is shorter or longer than Envoy allows."""
    result = [resource for named in resources.by_type.values() for resource in named.values()]
    return [problem for resource in result for problem in _of_resource(resource)]


def _of_resource(resource: XdsResource) -> Iterator[str]:
    packed = any_pb2.Any(type_url=resource.type_url, value=resource.body)
    for problem in _of_message(packed):
        yield f"{resource.name}: {problem}"


def _of_message(message: Any) -> Iterator[str]:
    if isinstance(message, any_pb2.Any):
        inner = _unpacked(message)
        if inner is not None:
            yield from _of_message(inner)
        return
    for field, value in message.ListFields():
        yield from _of_field(field, value)


def _unpacked(message: any_pb2.Any) -> Any:
    name = message.type_url.rpartition("/")[2]
    if name.startswith("gatehouse."):
        return None  # Described to the agent, not to Envoy.
    unpacked = symbol_database.Default().GetSymbol(name)()
    unpacked.ParseFromString(message.value)
    return unpacked


def _of_field(field: FieldDescriptor, value: Any) -> Iterator[str]:
    extension: Any = validate_pb2.rules
    rules = field.GetOptions().Extensions[extension]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        yield from _bounded(field, rules.map, value)
        for key, item in value.items():
            yield from _of_value(field, rules.map.keys, key)
            yield from _of_value(field, rules.map.values, item)
    elif field.is_repeated:
        yield from _bounded(field, rules.repeated, value)
        for item in value:
            yield from _of_value(field, rules.repeated.items, item)
    else:
        yield from _of_value(field, rules, value)


def _of_value(field: FieldDescriptor, rules: Any, value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _bounded(field, rules.string, value)
    elif isinstance(value, bytes):
        yield from _bounded(field, rules.bytes, value)
    elif hasattr(value, "ListFields"):
        yield from _of_message(value)


def _bounded(field: FieldDescriptor, rules: Any, value: Any) -> Iterator[str]:
    for name in _BOUNDS:
        if name not in rules.DESCRIPTOR.fields_by_name or not rules.HasField(name):
            continue
        in_bytes = name.endswith("_bytes") and isinstance(value, str)
        size, bound = len(value.encode()) if in_bytes else len(value), getattr(rules, name)
        if size < bound if name.startswith("min") else size > bound:
            yield f"{field.full_name} has {size}, {name} is {bound}"
