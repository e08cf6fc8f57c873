"""OpenAPI v3 by group and version: schemas for `kubectl explain` and for patches of clients."""

from __future__ import annotations

import hashlib

import msgspec

from kube_api_server.http import metadata_texts
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.builtin_types.schemas import reference_schema
from kube_base.types.objects import Object

_METADATA = "meta.ObjectMeta"

_MEDIA = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)


class OpenApi:
    """OpenAPI v3 documents of one registry, rebuilt after the registry has changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = -1
        self._documents: dict[str, bytes] = {}

    def index(self) -> Object:
        """Return the document of `/openapi/v3`."""
        paths = {}
        for path, data in self._all().items():
            digest = hashlib.sha256(data).hexdigest().upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}

    def document(self, path: str) -> bytes | None:
        """Return the document of `/openapi/v3/<path>`; None if it does not exist."""
        return self._all().get(path)

    def _all(self) -> dict[str, bytes]:
        if self._generation != self._registry.generation:
            groups: dict[str, list[ServedResource]] = {}
            for served in self._registry.all():
                groups.setdefault(_path(served), []).append(served)
            self._documents = {
                path: msgspec.json.encode(_document(served), order="sorted")
                for path, served in sorted(groups.items())
            }
            self._generation = self._registry.generation
        return self._documents


def _path(served: ServedResource) -> str:
    group, version = served.resource.group, served.resource.version
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _document(served: list[ServedResource]) -> Object:
    schemas: Object = {}
    for resource in served:
        schemas[definition_name(resource)] = kind_definition(
            resource, schemas, "#/components/schemas/"
        )
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": {url: item for resource in served for url, item in _urls(resource).items()},
        "components": {"schemas": schemas},
    }


def _urls(served: ServedResource) -> dict[str, Object]:
    resource = served.resource
    base = f"/{_path(served)}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"{base}{scope}/{resource.plural}"
    post = _operation(served, "post", ("dryRun", "fieldManager", "fieldValidation"))
    if not served.persisted:
        return {collection: {"post": post}}
    return {
        collection: {"get": _operation(served, "list", ()), "post": post},
        f"{collection}/{{name}}": {
            "get": _operation(served, "get", ()),
            "put": _operation(served, "put", ("dryRun", "fieldManager", "fieldValidation")),
            "patch": _patch(served),
            "delete": _operation(served, "delete", ("dryRun",)),
        },
    }


def _operation(served: ServedResource, action: str, parameters: tuple[str, ...]) -> Object:
    listed = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in parameters]
    return {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind_of(served),
        # Clients of Go leave an empty list out when they encode the document again.
        **({"parameters": listed} if listed else {}),
        "responses": {"200": {"description": "OK"}},
    }


def _patch(served: ServedResource) -> Object:
    patch = _operation(served, "patch", ("dryRun", "fieldManager", "fieldValidation", "force"))
    media = [*_MEDIA]
    if served.builtin:
        media.append("application/strategic-merge-patch+json")
    patch["requestBody"] = {"content": {name: {"schema": {"type": "object"}} for name in media}}
    return patch


def kind_of(served: ServedResource) -> Object:
    """Return group, version and kind as OpenAPI extensions name them."""
    resource = served.resource
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def definition_name(served: ServedResource) -> str:
    """Return the name of the kind's schema. It starts with the reversed group."""
    resource = served.resource
    if served.builtin:
        package = resource.group.split(".")[0] or "core"
        return type_name(f"{package}.{resource.version}.{resource.kind}")
    parts = [*reversed(resource.group.split(".")), resource.version, resource.kind]
    return ".".join(parts)


def type_name(name: str) -> str:
    """Return the name under which Kubernetes publishes a built-in type."""
    if name.startswith("meta."):
        return f"io.k8s.apimachinery.pkg.apis.meta.v1.{name[5:]}"
    if name.startswith("apiextensions."):
        return f"io.k8s.apiextensions-apiserver.pkg.apis.{name}"
    return f"io.k8s.api.{name}"


def kind_definition(served: ServedResource, schemas: Object, prefix: str) -> Object:
    """Return a kind's schema. Types that built-in kinds refer to are added to `schemas`."""
    head = {
        "apiVersion": {"type": "string", "description": metadata_texts.API_VERSION_TEXT},
        "kind": {"type": "string", "description": metadata_texts.KIND_TEXT},
    }
    kinds = {"x-kubernetes-group-version-kind": [kind_of(served)]}
    reference = _reference(_METADATA, schemas, prefix)
    meta = {"allOf": [reference], "description": metadata_texts.METADATA_TEXT}
    if served.builtin:
        package = served.resource.group.split(".")[0] or "core"
        name = f"{package}.{served.resource.version}.{served.resource.kind}"
        definition = _type(name, schemas, prefix)
        properties = {**head, **definition.get("properties", {})}
        if "metadata" in properties:
            properties["metadata"] = meta
        return {**definition, **kinds, "properties": properties}
    schema = served.schema
    properties = {**(schema.get("properties") or {}), **head, "metadata": meta}
    return {**schema, "type": "object", "properties": properties, **kinds}


def _type(name: str, schemas: Object, prefix: str) -> Object:
    schema = reference_schema(name, lambda inner: _reference(inner, schemas, prefix))
    return metadata_texts.described_metadata(schema) if name == _METADATA else schema


def _reference(name: str, schemas: Object, prefix: str) -> Object:
    public = type_name(name)
    if public not in schemas:
        schemas[public] = {}
        schemas[public] = _type(name, schemas, prefix)
    return {"$ref": prefix + public}
