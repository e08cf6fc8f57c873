"""Tables (meta.k8s.io/v1) for `kubectl get`."""

from __future__ import annotations

from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.objects import Object

META = "meta.k8s.io/v1"
"""API version of Tables and of metadata without the rest of their objects."""


def build_table(served: ServedResource, metadata: Object, *, headed: bool = True) -> Object:
    """Build a Table without rows."""
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
        "apiVersion": META,
        "metadata": metadata,
        "columnDefinitions": columns if headed else None,
    }


def row(served: ServedResource, obj: Object, include: str) -> Object:
    """Return an object as a row. `include` is Metadata, Object or None."""
    inner = {"Object": obj, "Metadata": partial(obj)}.get(include)
    return {"cells": [column.cell(obj) for column in served.columns], "object": inner}


def partial(obj: Object) -> Object:
    """Return only the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": obj["metadata"]}
