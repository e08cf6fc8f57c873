"""URL paths of collections and objects. Pure; a name can never lead to another path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gatehouse.apis.resources import Resource
from gatehouse.kube.errors import BadRequest


def collection(resource: Resource, namespace: str | None) -> str:
    """Give the path of a collection: of one namespace, or of all for None."""
    if namespace is not None and resource.namespaced:
        return resource.path(_segment(resource, "namespace", namespace))
    return resource.path()


def object_path(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
    """Give the path of one object or of a subresource of it."""
    where = _segment(resource, "namespace", namespace) if resource.namespaced else None
    return resource.path(where, _segment(resource, "name", name), subresource)


def path_of(resource: Resource, obj: Mapping[str, Any], subresource: str = "") -> str:
    """Give the path of an object by its own metadata."""
    metadata = obj.get("metadata", {})
    return object_path(
        resource, metadata.get("namespace", ""), metadata.get("name", ""), subresource
    )


def _segment(resource: Resource, what: str, value: str) -> str:
    """Quote a name for a URL; one that would lead to another path is refused here."""
    if value in ("", ".", "..") or "/" in value or "%" in value:
        message = f"{resource.kind}: {what} {value!r} cannot be part of a URL"
        raise BadRequest(400, "BadRequest", message)
    return quote(value, safe=":")
