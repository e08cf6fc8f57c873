"""OpenAPI v3: enough for kubectl to leave validation to the server, and for `kubectl explain`."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from gatehouse.apiserver.patches import JSON_PATCH, MERGE_PATCH
from gatehouse.apiserver.registry import SERVED, Served

Object = dict[str, Any]


def _paths() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for served in SERVED:
        for version in served.versions:
            group = served.resource.group
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            found[path] = (group, version)
    return found


def index() -> Object:
    """Give ``/openapi/v3``."""
    paths = {}
    for path in _paths():
        digest = hashlib.sha256(msgspec.json.encode(document(path), order="sorted")).hexdigest()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest.upper()}"}
    return {"paths": paths}


def document(path: str) -> Object | None:
    """Give ``/openapi/v3/<path>``."""
    found = _paths().get(path)
    if found is None:
        return None
    group, version = found
    served = [
        entry
        for entry in SERVED
        if entry.stored and entry.resource.group == group and version in entry.versions
    ]
    return {
        "openapi": "3.0.0",
        "info": {"title": "Gatehouse", "version": "v1"},
        "paths": {_url(entry, version): _operations(entry, version) for entry in served},
        "components": {"schemas": {_name(e, version): _schema(e, version) for e in served}},
    }


def _url(entry: Served, version: str) -> str:
    resource = entry.resource
    base = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{base}{scope}/{resource.plural}/{{name}}"


def _operations(entry: Served, version: str) -> Object:
    kind = _kind(entry, version)
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    # Strategic merge is left out on purpose: kubectl then uses its own structs for core kinds.
    body: Object = {"content": {media: {"schema": {}} for media in (JSON_PATCH, MERGE_PATCH)}}
    patch = {
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind,
        "parameters": parameters,
        "requestBody": body,
        "responses": {"200": {"description": "OK"}},
    }
    return {"patch": patch}


def _kind(entry: Served, version: str) -> Object:
    return {"group": entry.resource.group, "version": version, "kind": entry.resource.kind}


def _name(entry: Served, version: str) -> str:
    parts = [*reversed((entry.resource.group or "core").split(".")), version, entry.resource.kind]
    return ".".join(parts)


def _schema(entry: Served, version: str) -> Object:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **entry.schema.get("properties", {}),
    }
    return {
        "type": "object",
        "properties": properties,
        "x-kubernetes-group-version-kind": [_kind(entry, version)],
    }
