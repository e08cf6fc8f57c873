"""Uniqueness in sets and associative lists."""

from __future__ import annotations

from typing import Any

from kube_api_server.causes import duplicate_cause
from kube_api_server.errors import Cause
from kube_api_server.structural import list_keys
from kube_api_server.structural.schema_node import SchemaNode


def duplicate_items(node: SchemaNode, value: Any, path: str) -> list[Cause]:
    """Return the violations for duplicates in lists that must be unique."""
    causes: list[Cause] = []
    _walk(node, value, path, causes)
    return causes


def _walk(node: SchemaNode, value: Any, path: str, causes: list[Cause]) -> None:
    if not node.keyed:
        return
    if isinstance(value, list):
        if node.list_type in ("set", "map"):
            _check(node, value, path, causes)
        if node.items is not None:
            for index, item in enumerate(value):
                _walk(node.items, item, f"{path}[{index}]", causes)
    elif isinstance(value, dict):
        for name, item in value.items():
            inner = node.property(name)
            if inner is not None:
                _walk(inner, item, f"{path}.{name}" if path else name, causes)
            elif node.additional is not None:
                _walk(node.additional, item, f"{path}[{name}]", causes)


def _check(node: SchemaNode, value: list[Any], path: str, causes: list[Cause]) -> None:
    counts: dict[bytes, int] = {}
    for index, item in enumerate(value):
        if node.list_type == "map" and not isinstance(item, dict):
            continue
        identity = list_keys.item_key(node, item)
        encoded = list_keys.encode_key(identity)
        counts[encoded] = counts.get(encoded, 0) + 1
        if counts[encoded] == 2:
            causes.append(_duplicate(node, identity, f"{path}[{index}]"))


def _duplicate(node: SchemaNode, identity: Any, field: str) -> Cause:
    """Build the cause. It names the key of an item of a built-in kind, if there is only one."""
    if node.omitted and node.list_type == "map" and len(node.list_keys) == 1:
        (key,) = node.list_keys
        identity, field = identity.get(key), f"{field}.{key}"
    return duplicate_cause(field, identity)
