"""Pruning, defaults and the canonical form of quantities, in one walk over a value.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting-and-nullable
"""

from __future__ import annotations

from typing import Any

from kube_api_server.structural.schema_node import SchemaNode
from kube_base.types.objects import copy_value
from kube_base.types.quantities import canonical_or_same

_HEAD = ("apiVersion", "kind", "metadata")


def prune_object(node: SchemaNode, obj: dict[str, Any], unknown: list[str]) -> None:
    """Remove unknown fields of a complete object. No default is set, and nulls stay."""
    _prune_value(node, obj, "", unknown, head=True)


def _prune_value(
    node: SchemaNode, value: Any, path: str, unknown: list[str], *, head: bool
) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value if node.items is not None else ()):
            assert node.items is not None
            _prune_value(node.items, item, f"{path}[{index}]", unknown, head=node.items.embedded)
    if not isinstance(value, dict):
        return
    if not node.preserve and node.type in ("object", ""):
        _prune(node, value, path, unknown, head=head)
    for name, item in value.items():
        inner = node.property(name) or node.additional
        if inner is not None and not (head and name in _HEAD):
            field = f"{path}.{name}" if path else name
            _prune_value(inner, item, field, unknown, head=inner.embedded)


class Preparation:
    """One walk over an object."""

    def __init__(self, *, nulls: bool = False) -> None:
        self.unknown: list[str] = []
        """Paths of unknown fields."""
        self._nulls = nulls
        """True if nulls stay in fields without a default."""

    def prepare_object(self, node: SchemaNode, obj: dict[str, Any]) -> None:
        """Prepare a complete object. Its apiVersion, kind and metadata are not changed."""
        self._object(node, obj, "", head=True)

    def _value(self, node: SchemaNode, value: Any, path: str) -> None:
        if isinstance(value, dict):
            self._object(node, value, path, head=node.embedded)
        elif isinstance(value, list):
            items = node.items
            if node.null_item is not None and None in value:
                value[:] = (_item_or_zero(node, item) for item in value)
            if items is not None:
                for index, item in enumerate(value):
                    if item.__class__ is dict or item.__class__ is list:
                        self._value(items, item, f"{path}[{index}]")

    def _object(self, node: SchemaNode, value: dict[str, Any], path: str, *, head: bool) -> None:
        if not node.preserve and node.type in ("object", ""):
            _prune(node, value, path, self.unknown, head=head)
        self._drop_empty(node, value)
        for name in node.defaulted:
            if name not in value:
                inner = node.property(name)
                assert inner is not None
                value[name] = copy_value(inner.default)
        additional = node.additional
        for name in value if additional is not None and additional.quantity else node.quantities:
            if name in value:
                value[name] = canonical_or_same(value[name])
        for name, item in value.items():
            if not (item.__class__ is dict or item.__class__ is list) or (head and name in _HEAD):
                continue
            inner = node.property(name) or node.additional
            if inner is not None:
                self._value(inner, item, f"{path}.{name}" if path else name)

    def _drop_empty(self, node: SchemaNode, value: dict[str, Any]) -> None:
        """Remove fields that count as absent: nulls, and zero values that are not written."""
        if all(value.values()):
            return
        self._drop_nulls(node, value)
        for name in [key for key, item in value.items() if not item and item is not None]:
            inner = node.property(name)
            if inner is not None and inner.omitted:
                del value[name]

    def _drop_nulls(self, node: SchemaNode, value: dict[str, Any]) -> None:
        """Remove nulls from fields that are not nullable. They count as absent."""
        if None not in value.values():
            return
        for name in [key for key, item in value.items() if item is None]:
            inner = node.property(name)
            if inner is None:
                value[name] = _item_or_zero(node, None)
            elif not inner.nullable and inner.type and not (self._nulls and inner.default is None):
                del value[name]


def _item_or_zero(node: SchemaNode, item: Any) -> Any:
    """Return an item of a list or map, or the zero value of a null."""
    return copy_value(node.null_item) if item is None else item


def _prune(
    node: SchemaNode, value: dict[str, Any], path: str, unknown: list[str], *, head: bool
) -> None:
    if node.additional is not None:
        return
    properties = node.properties
    for name in [key for key in value if key not in properties]:
        if head and name in _HEAD:
            continue
        del value[name]
        unknown.append(f"{path}.{name}" if path else name)
