"""URL paths and queries of collections. A name can never lead to another path. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gatehouse.kube.errors import BadRequest
from kube_base.types.resource import Resource


def collection(resource: Resource, namespace: str | None) -> str:
    """Return the path of a collection, in one namespace or in all for None."""
    if namespace is not None and resource.namespaced:
        return resource.path(_segment(resource, "namespace", namespace))
    return resource.path()


def object_path(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object or its subresource."""
    namespace_segment = _segment(resource, "namespace", namespace) if resource.namespaced else None
    return resource.path(namespace_segment, _segment(resource, "name", name), subresource)


def path_of_object(resource: Resource, obj: Mapping[str, Any], subresource: str = "") -> str:
    """Return the path of an object from its metadata."""
    metadata = obj.get("metadata", {})
    return object_path(
        resource, metadata.get("namespace", ""), metadata.get("name", ""), subresource
    )


def selectors(labels: str, fields: str) -> dict[str, str]:
    """Return the query that selects objects of a collection; empty selectors select all."""
    pairs = (("labelSelector", labels), ("fieldSelector", fields))
    return {name: value for name, value in pairs if value}


def _segment(resource: Resource, field: str, value: str) -> str:
    """Quote a name for a URL. Raises BadRequest if it would lead to another path."""
    if value in ("", ".", "..") or "/" in value or "%" in value:
        message = f"{resource.kind}: {field} {value!r} cannot be part of a URL"
        raise BadRequest(400, "BadRequest", message)
    return quote(value, safe=":")
