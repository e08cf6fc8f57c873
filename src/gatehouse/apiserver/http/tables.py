"""Tables (meta.k8s.io/v1) for `kubectl get`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gatehouse.apiserver.objects.served_resource import ServedResource

Object = dict[str, Any]

_META = "meta.k8s.io/v1"


def table(
    served: ServedResource, result: Iterable[Object], metadata: Object, *, headed: bool = True
) -> Object:
    """Build a Table of rows."""
    columns = [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": int(column.wide),
        }
        for column in served.columns
    ]
    return {
        "kind": "Table",
        "apiVersion": _META,
        "metadata": metadata,
        "columnDefinitions": columns if headed else [],
        "rows": list(result),
    }


def rows(served: ServedResource, objects: Iterable[Object], include: str) -> list[Object]:
    """Return objects as rows. `include` is Metadata, Object or None."""
    result = []
    for obj in objects:
        row: Object = {"cells": [column.cell(obj) for column in served.columns]}
        if include == "Object":
            row["object"] = obj
        elif include == "Metadata":
            row["object"] = partial(obj)
        else:
            row["object"] = None
        result.append(row)
    return result


def partial(obj: Object) -> Object:
    """Return only the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}
