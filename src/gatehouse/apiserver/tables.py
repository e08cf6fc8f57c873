"""What `kubectl get` prints: objects as rows of a Table (meta.k8s.io/v1)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from gatehouse.apiserver.registry import Column, Served

Object = dict[str, Any]


def table(served: Served, objects: Iterable[Object], metadata: Object) -> Object:
    """Give objects as a Table; each row carries the object's metadata."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": "string" if column.type == "date" else column.type,
                "format": "name" if column.path == "metadata.name" else "",
                "description": column.path,
                "priority": int(column.wide),
            }
            for column in _columns(served)
        ],
        "rows": [row(served, obj) for obj in objects],
    }


def row(served: Served, obj: Object) -> Object:
    """Give one object as a row."""
    partial = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
    return {"cells": [_cell(column, obj) for column in _columns(served)], "object": partial}


def _columns(served: Served) -> tuple[Column, ...]:
    return served.columns or (Column("Name", "metadata.name"),)


def _cell(column: Column, obj: Object) -> Any:
    value = _at(obj, column.path.split("."))
    if column.type == "date":
        return _age(value)
    if column.type == "integer":
        return len(value) if isinstance(value, dict | list) else value or 0
    if column.path == "spec.ports":
        return ",".join(f"{p['port']}/{p.get('protocol', 'TCP')}" for p in value or ()) or "<none>"
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items()) or "<none>"
    if isinstance(value, list):
        if column.path == "spec.hostnames":
            return '["' + '","'.join(value) + '"]'
        return ",".join(str(item) for item in value) or "<none>"
    if isinstance(value, bool):
        return "1/1" if value else "0/1"
    return "" if value is None else str(value)


def _at(value: Any, steps: list[str]) -> Any:
    """Follow a path; ``*`` is every item, a number an item, a name after conditions its status."""
    for index, step in enumerate(steps):
        if value is None:
            return None
        if step == "*":
            found = [_at(item, steps[index + 1 :]) for item in value]
            return list(dict.fromkeys(item for item in found if item is not None))
        if isinstance(value, list) and step.isdigit():
            value = value[int(step)] if int(step) < len(value) else None
        elif isinstance(value, list):
            value = next((item["status"] for item in value if item.get("type") == step), "Unknown")
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _age(created: Any) -> str:
    try:
        since = datetime.strptime(str(created), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return "<unknown>"
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"
