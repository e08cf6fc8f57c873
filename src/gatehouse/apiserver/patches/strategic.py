"""Strategic merge patch: lists are merged as the schema of the kind defines.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

from typing import Any

from gatehouse.apiserver.errors import bad_request

Schema = dict[str, Any]
Object = dict[str, Any]

_ORDER, _DELETE, _RETAIN, _PATCH = (
    "$setElementOrder/",
    "$deleteFromPrimitiveList/",
    "$retainKeys",
    "$patch",
)


def merge(current: Any, patch: Any, schema: Schema) -> Any:
    """Apply a strategic merge patch. Neither argument is changed. Raises ApiError."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    result = dict(current) if isinstance(current, dict) else {}
    if _RETAIN in patch:
        retained = set(patch[_RETAIN])
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETE):
            name = key[len(_DELETE) :]
            result[name] = [item for item in result.get(name) or [] if item not in value]
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
                result[name] = _ordered(result[name], order, _inner(schema, name))
    return result


def _inner(schema: Schema, key: str) -> Schema:
    found = (schema.get("properties") or {}).get(key) or schema.get("additionalProperties")
    return found if isinstance(found, dict) else {}


def _merges(schema: Schema) -> bool:
    return "merge" in schema.get("x-kubernetes-patch-strategy", "").split(",")


def _field(current: Any, value: Any, schema: Schema) -> Any:
    if isinstance(value, list):
        return _list(current or [], value, schema) if _merges(schema) else value
    return merge(current, value, schema)


def _list(current: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    key, items = schema.get("x-kubernetes-patch-merge-key"), schema.get("items") or {}
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in patch):
        return [item for item in patch if item.get(_PATCH) != "replace"]
    result = list(current)
    if key is None:
        return result + [item for item in patch if item not in result]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        found = next((i for i, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get(_PATCH) == "delete":
            result = [old for old in result if old.get(key) != item[key]]
        elif found is None:
            result.append(merge({}, item, items))
        else:
            result[found] = merge(result[found], item, items)
    return result


def _ordered(items: list[Any], order: list[Any], schema: Schema) -> list[Any]:
    """Sort items by `order`. Items that it does not name follow in their current order."""
    key = schema.get("x-kubernetes-patch-merge-key")

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    expected = [identity(item) for item in order]
    named = [item for item in items if identity(item) in expected]
    named.sort(key=lambda item: expected.index(identity(item)))
    sequence = iter(named)
    if len(named) == len(items):
        return named
    others = [item for item in items if identity(item) not in expected]
    return [*sequence, *others]


METADATA: Schema = {
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
