"""Fields of values. Schemas define which lists are associative and what is atomic.

The semantics are those of Kubernetes' structured-merge-diff.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kube_api_server.fields import sets
from kube_api_server.fields.sets import Tree
from kube_base.types.builtin_types.schemas import STRUCT, ZERO
from kube_base.types.objects import Schema

_ABSENT = object()


class Comparison:
    """Difference between two values."""

    def __init__(self) -> None:
        self.changed: Tree = {}
        """Added or modified fields."""
        self.removed: Tree = {}


def inner_schema(schema: Schema, name: str) -> Schema:
    """Return the schema of a field."""
    field_schema = (schema.get("properties") or {}).get(name)
    if field_schema is None:
        field_schema = schema.get("additionalProperties")
    return field_schema if isinstance(field_schema, dict) else {}


def is_named(schema: Schema, name: str) -> bool:
    """Return whether a schema names a field."""
    return name in (schema.get("properties") or {})


def is_granular(schema: Schema) -> bool:
    """Return whether the fields of an object are owned separately."""
    return schema.get("x-kubernetes-map-type") != "atomic"


def step_of(schema: Schema, item: Any) -> str | None:
    """Return the path step of a list item; None if the list is atomic. Raises ValueError."""
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return "v:" + msgspec.json.encode(item).decode()
    if kind != "map" or not schema.get("x-kubernetes-list-map-keys"):
        return None
    if not isinstance(item, dict):
        raise ValueError("items of an associative list must be objects")  # noqa: TRY004
    properties = (schema.get("items") or {}).get("properties") or {}
    keys = {}
    for key in sorted(schema["x-kubernetes-list-map-keys"]):
        value = item.get(key, (properties.get(key) or {}).get("default", _ABSENT))
        if value is not _ABSENT:
            keys[key] = value
    return "k:" + msgspec.json.encode(keys).decode()


def associative(schema: Schema) -> bool:
    """Return whether the items of a list have an identity."""
    kind = schema.get("x-kubernetes-list-type")
    return kind == "set" or (kind == "map" and bool(schema.get("x-kubernetes-list-map-keys")))


def items_by_step(schema: Schema, value: list[Any], path: str) -> dict[str, Any]:
    """Return the items of an associative list by step. Raises ValueError for duplicates."""
    result: dict[str, Any] = {}
    for item in value:
        step = step_of(schema, item)
        assert step is not None
        if step in result and schema.get("x-kubernetes-list-type") == "map":
            raise ValueError(f"{path}: duplicate entries for key {step[2:]}")
        result[step] = item
    return result


def fields_of(value: Any, schema: Schema, path: str = "") -> Tree | None:
    """Return the fields that an applied value owns; None if there are none."""
    if isinstance(value, dict) and is_granular(schema):
        children: Tree = {}
        for name, item in value.items():
            inner = fields_of(item, inner_schema(schema, name), f"{path}.{name}")
            if inner is None:
                if item == {} or item is None:
                    inner = {}
                else:
                    continue
            elif inner and not is_named(schema, name) and schema:
                inner = {sets.SELF: {}, **inner}
            children[f"f:{name}"] = inner
        return children or None
    if isinstance(value, list) and associative(schema):
        children = {}
        for step, item in items_by_step(schema, value, path).items():
            inner = fields_of(item, schema.get("items") or {}, path) if step[0] == "k" else {}
            children[step] = {sets.SELF: {}, **inner} if inner else {}
        return children or None
    return {}


def compare(before: Any, after: Any, schema: Schema) -> Comparison:
    """Compare two complete objects."""
    comparison = Comparison()
    comparison.changed, comparison.removed = _maps(before, after, schema, exists=True)
    return comparison


Pair = tuple[Tree, Tree]


def _maps(before: dict[str, Any], after: dict[str, Any], schema: Schema, *, exists: bool) -> Pair:
    """Compare the fields of two objects. `exists` is set if the first one exists."""
    changed: Tree = {}
    removed: Tree = {}
    for name, item in after.items():
        old = before.get(name, _ABSENT)
        if old is not _ABSENT and (old is item or old == item):
            continue
        inner = inner_schema(schema, name)
        if old is _ABSENT and exists and inner.get(ZERO) and item == inner["default"]:
            continue
        difference = _values(old, item, inner, exists=exists)
        _add_difference(changed, removed, f"f:{name}", difference)
    for name, old in before.items():
        if name not in after:
            difference = _values(old, _ABSENT, inner_schema(schema, name), exists=exists)
            _add_difference(changed, removed, f"f:{name}", difference)
    return changed, removed


def _add_difference(
    changed: Tree, removed: Tree, step: str, difference: tuple[Tree | None, Tree | None]
) -> None:
    if difference[0] is not None:
        changed[step] = difference[0]
    if difference[1] is not None:
        removed[step] = difference[1]


def _values(
    old: Any, new: Any, schema: Schema, *, exists: bool = False
) -> tuple[Tree | None, Tree | None]:
    """Compare two different values, either of which may be absent.

    `exists` is set if the object with the first value exists, so that its structs do, too.
    """
    exists = exists and bool(schema.get(STRUCT))
    if (old is None or new is None) and isinstance(shape := old or new, (dict, list)):
        # The list or map is there, and has no items.
        old, new = (type(shape)() if value is None else value for value in (old, new))
    present = new if new is not _ABSENT else old
    same_shape = old is _ABSENT or new is _ABSENT or type(old) is type(new)
    if isinstance(present, dict) and is_granular(schema) and same_shape:
        before, after = ({} if value is _ABSENT else value for value in (old, new))
        known = exists or old is not _ABSENT
        return _nested(old, new, _maps(before, after, schema, exists=known), exists=exists)
    if isinstance(present, list) and associative(schema) and same_shape:
        return _nested(old, new, _lists(old, new, schema), exists=exists)
    if new is _ABSENT:
        return None, {}
    return {}, None


def _nested(
    old: Any, new: Any, difference: Pair, *, exists: bool
) -> tuple[Tree | None, Tree | None]:
    changed, removed = difference
    return (
        sets.tree(changed, member=old is _ABSENT and not exists),
        sets.tree(removed, member=new is _ABSENT and not exists),
    )


def _lists(old: Any, new: Any, schema: Schema) -> Pair:
    items = schema.get("items") or {}
    try:
        before = {} if old is _ABSENT else items_by_step(schema, old, "")
        after = {} if new is _ABSENT else items_by_step(schema, new, "")
    except ValueError:
        return {}, {}
    changed: Tree = {}
    removed: Tree = {}
    for step, item in after.items():
        if step not in before:
            inner = _values(_ABSENT, item, items)[0] if step[0] == "k" else {}
            changed[step] = inner if inner is not None else {}
        elif before[step] != item:
            _add_difference(changed, removed, step, _values(before[step], item, items))
    for step, item in before.items():
        if step not in after:
            inner = _values(item, _ABSENT, items)[1] if step[0] == "k" else {}
            removed[step] = inner if inner is not None else {}
    return changed, removed


def merge_applied(live: Any, applied: Any, schema: Schema) -> Any:
    """Return a live value merged with an applied value."""
    if applied is None and live:
        # Fields and items of others stay.
        if isinstance(live, dict) and is_granular(schema):
            return live
        if isinstance(live, list) and associative(schema):
            return live
    if isinstance(applied, dict) and isinstance(live, dict) and is_granular(schema):
        result = dict(live)
        for name, item in applied.items():
            known = result.get(name, _ABSENT)
            inner = inner_schema(schema, name)
            result[name] = item if known is _ABSENT else merge_applied(known, item, inner)
        return result
    if isinstance(applied, list) and isinstance(live, list) and associative(schema):
        items = schema.get("items") or {}
        before, after = items_by_step(schema, live, ""), items_by_step(schema, applied, "")
        merged = {
            step: merge_applied(item, after[step], items) if step in after else item
            for step, item in before.items()
        }
        return [*merged.values(), *(item for step, item in after.items() if step not in before)]
    return applied


def prune_unowned(value: Any, last: Tree, owned: Tree, schema: Schema) -> Any:
    """Remove fields that were applied before (`last`) and have no owner now."""
    if isinstance(value, dict):
        result = dict(value)
        for step, inner in last.items():
            name = step[2:]
            if step[:2] != "f:" or name not in result:
                continue
            if step not in owned:
                del result[name]
            elif inner and is_granular(inner_schema(schema, name)):
                result[name] = prune_unowned(
                    result[name], inner, owned[step], inner_schema(schema, name)
                )
        return result
    if isinstance(value, list) and associative(schema):
        items = []
        for step, item in items_by_step(schema, value, "").items():
            if step not in last:
                items.append(item)
            elif step in owned:
                inner = schema.get("items") or {}
                items.append(
                    prune_unowned(item, last[step], owned[step], inner) if last[step] else item
                )
        return items
    return value
