"""Strategic merge patch: lists are merged as the schema of the kind defines.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from kube_base.types.objects import Schema
from kube_base.types.patches.errors import MalformedPatchError

_ORDER, _DELETE, _RETAIN, _PATCH = (
    "$setElementOrder/",
    "$deleteFromPrimitiveList/",
    "$retainKeys",
    "$patch",
)
_DELETED = object()


def merge_strategic(current: Any, patch: Any, schema: Schema) -> Any:
    """Apply a strategic merge patch. Neither argument is changed. Raises MalformedPatchError."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    result = dict(current) if isinstance(current, dict) else {}
    if _RETAIN in patch:
        retained = {_identity(item) for item in _list_of(patch[_RETAIN], _RETAIN)}
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETE):
            name = key[len(_DELETE) :]
            deleted = {_identity(item) for item in _list_of(value, key)}
            remaining = _list_of(result.get(name) or [], name)
            result[name] = [item for item in remaining if _identity(item) not in deleted]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = _field(result.get(key), value, _inner(schema, key))
    for key, order in patch.items():
        if key.startswith(_ORDER):
            name = key[len(_ORDER) :]
            if isinstance(result.get(name), list):
                result[name] = _ordered(result[name], _list_of(order, key), _inner(schema, name))
    return result


def _inner(schema: Schema, key: str) -> Schema:
    inner = (schema.get("properties") or {}).get(key) or schema.get("additionalProperties")
    return inner if isinstance(inner, dict) else {}


def _merges(schema: Schema) -> bool:
    return "merge" in schema.get("x-kubernetes-patch-strategy", "").split(",")


def _field(current: Any, value: Any, schema: Schema) -> Any:
    if isinstance(value, list):
        if not _merges(schema):
            return value
        return _list(current if isinstance(current, list) else [], value, schema)
    return merge_strategic(current, value, schema)


def _list(current: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    key, items = schema.get("x-kubernetes-patch-merge-key"), schema.get("items") or {}
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in patch):
        return [
            item for item in patch if not isinstance(item, dict) or item.get(_PATCH) != "replace"
        ]
    if key is None:
        present = {_identity(item) for item in current}
        return current + [item for item in patch if _identity(item) not in present]
    result: list[Any] = list(current)
    positions: dict[Hashable, list[int]] = {}
    for position, item in enumerate(current):
        if isinstance(item, dict):
            positions.setdefault(_identity(item.get(key)), []).append(position)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise MalformedPatchError(f"map: {item} does not contain declared merge key: {key}")
        identity = _identity(item[key])
        if item.get(_PATCH) == "delete":
            for position in positions.pop(identity, ()):
                result[position] = _DELETED
        elif identity in positions:
            position = positions[identity][0]
            result[position] = merge_strategic(result[position], item, items)
        else:
            positions[identity] = [len(result)]
            result.append(merge_strategic({}, item, items))
    return [item for item in result if item is not _DELETED]


def _list_of(value: Any, name: str) -> list[Any]:
    """Return a value that must be a list. Raises MalformedPatchError."""
    if not isinstance(value, list):
        raise MalformedPatchError(f"map: {name} must be a list")
    return value


def _identity(item: Any) -> Hashable:
    """Return a value that is equal for equal items. Sets of it take time linear in their size."""
    if isinstance(item, (dict, list)):
        return msgspec.json.encode(item, order="sorted")
    return item  # type: ignore[no-any-return]


def _ordered(items: list[Any], order: list[Any], schema: Schema) -> list[Any]:
    """Sort items by `order`. Items that it does not name follow in their current order."""
    key = schema.get("x-kubernetes-patch-merge-key")

    def identity(item: Any) -> Hashable:
        return _identity(item.get(key) if key and isinstance(item, dict) else item)

    places: dict[Hashable, int] = {}
    for place, item in enumerate(order):
        places.setdefault(identity(item), place)
    # The sort is stable, so that items without a place keep their order.
    return sorted(items, key=lambda item: places.get(identity(item), len(places)))


METADATA_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "finalizers": {"type": "array", "x-kubernetes-patch-strategy": "merge"},
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "uid",
        },
    },
}
"""Merge keywords of metadata."""
