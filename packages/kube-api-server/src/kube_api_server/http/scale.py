"""Scale subresource (autoscaling/v1)."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from aiohttp import web

from kube_api_server import errors
from kube_api_server.builtin.columns import AGE, NAME
from kube_api_server.causes import invalid_cause
from kube_api_server.http import requests, responses
from kube_api_server.http.negotiation import form_of
from kube_api_server.http.patch_failures import patch_failures_answered
from kube_api_server.http.representations import Representation
from kube_api_server.http.requests import RequestTarget
from kube_api_server.http.resources import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kube_api_server.identity.users import User
from kube_api_server.objects import jsonpath
from kube_api_server.objects.served_resource import Column, Scale, ServedResource
from kube_api_server.objects.verbs import Verbs
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.storage.entries import StoredEntry
from kube_api_server.storage.store import ObjectStore
from kube_base.types.builtin_types import schemas
from kube_base.types.objects import Object
from kube_base.types.patches import json as json_patches
from kube_base.types.resource import Resource

_SCALE = ServedResource(
    resource=Resource("autoscaling", "v1", "scales", "Scale", namespaced=True),
    schema=schemas.schema_of("autoscaling.v1.Scale"),
    storage_version="v1",
    columns=(
        NAME,
        Column("Desired", lambda obj: obj["spec"]["replicas"], "integer"),
        Column("Available", lambda obj: obj["status"]["replicas"], "integer"),
        AGE,
    ),
)
"""Representations of a Scale of a built-in kind."""

_CUSTOM_SCALE = dataclasses.replace(_SCALE, builtin=False)
"""Representations of a Scale of a custom resource: never protobuf, as in kube-apiserver."""


def scale_of(obj: Object, scale: Scale) -> Object:
    """Return the Scale of an object."""
    metadata = obj["metadata"]
    metadata_fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": jsonpath.first(scale.status_replicas, obj) or 0}
    selector = jsonpath.first(scale.selector, obj) if scale.selector else None
    if selector:
        status["selector"] = selector if isinstance(selector, str) else _text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in metadata_fields if key in metadata},
        "spec": {"replicas": jsonpath.first(scale.replicas, obj) or 0},
        "status": status,
    }


def _text(selector: Object) -> str:
    """Return a label selector, or the labels that a ReplicationController selects, as text."""
    is_structured = "matchLabels" in selector or "matchExpressions" in selector
    labels = selector.get("matchLabels") or {} if is_structured else selector
    parts = [f"{key}={value}" for key, value in labels.items()]
    for expression in selector.get("matchExpressions") or ():
        values = ",".join(expression.get("values") or ())
        parts.append(f"{expression['key']} {expression['operator'].lower()} ({values})")
    return ",".join(parts)


async def answer(
    request: web.BaseRequest,
    target: RequestTarget,
    verb: str,
    user: User,
    store: ObjectStore,
    verbs: Verbs,
) -> web.Response:
    """Answer a read or write of a Scale. Raises StatusError."""
    scale = target.served.scale
    assert scale is not None
    form = form_of(request, _SCALE if target.served.builtin else _CUSTOM_SCALE)
    if verb == "get":
        await store.read_fresh()
        entry = store.get(target.key)
        if entry is None:
            resource = target.served.resource
            raise errors.not_found_error(resource.plural, resource.group, target.name)
        return _response(form, scale_of(entry.value, scale))
    if verb not in ("update", "patch"):
        raise requests.not_allowed(request)
    body = await requests.body(request)
    path = jsonpath.simple_path(scale.replicas)

    def change(current: Object) -> Object:
        requested = _requested_scale(request, scale_of(current, scale), body)
        replicas = (requested.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            why = "must be greater than or equal to 0"
            cause = invalid_cause("spec.replicas", replicas, why)
            raise errors.invalid_error("Scale", "autoscaling", target.name, [cause])
        holder = current
        for name in path[:-1]:
            holder = holder.setdefault(name, {})
        holder[path[-1]] = replicas
        version = (requested.get("metadata") or {}).get("resourceVersion")
        current["metadata"]["resourceVersion"] = version or ""
        return current

    call = WriteRequest(
        target.served, target.namespace, target.name, "scale", requests.options(request), user
    )
    written = await verbs.change(call, change)
    return _response(form, scale_of(written.value, scale))


def _response(form: Representation, scale: Object) -> web.Response:
    """Return a Scale in the requested representation."""
    revision = int(scale["metadata"].get("resourceVersion") or 0)
    entry = StoredEntry(revision, scale, msgspec.json.encode(scale))
    return responses.encoded(form, form.encode(entry))


def _requested_scale(request: web.BaseRequest, current: Object, body: Any) -> Object:
    if request.method == "PUT":
        return body if isinstance(body, dict) else {}
    if request.content_type == JSON_PATCH:
        with patch_failures_answered():
            patched = json_patches.patch(current, body)
    elif request.content_type in (MERGE_PATCH, STRATEGIC_PATCH, requests.APPLY):
        patched = json_patches.merge_json(current, body)
        if "resourceVersion" not in (body.get("metadata") or {}):
            patched["metadata"].pop("resourceVersion", None)
    else:
        raise errors.StatusError(
            415, "UnsupportedMediaType", "scale supports JSON patches and merge patches only"
        )
    return patched if isinstance(patched, dict) else {}
