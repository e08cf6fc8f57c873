"""HTTP verbs on objects and collections."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from typing import Any

from aiohttp import web

from kube_api_server import errors
from kube_api_server.causes import invalid_cause, required_cause
from kube_api_server.errors import StatusError
from kube_api_server.http import (
    bodies,
    depth,
    lists,
    requests,
    responses,
    slices,
    typed_bodies,
    watches,
)
from kube_api_server.http.negotiation import form_of
from kube_api_server.http.patch_failures import patch_failures_answered
from kube_api_server.http.requests import APPLY, RequestTarget
from kube_api_server.identity.users import User
from kube_api_server.objects.admission import check_location
from kube_api_server.objects.deletion import Deletion
from kube_api_server.objects.verbs import Verbs
from kube_api_server.objects.write_request import WriteOptions, WriteRequest
from kube_api_server.storage.entries import StoredEntry
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object, copy_value
from kube_base.types.patches import json as json_patches
from kube_base.types.patches import strategic

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_CASCADES = ("propagationPolicy", "orphanDependents")
"""Options of what happens to dependents."""
_ORPHANED_PODS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background "
    "to remove them or set propagationPolicy=Orphan to suppress this warning"
)
_RETURNED_WHEN_DELETED = ("pods", "services", "serviceaccounts")
"""Resources of the core group whose deletion is answered with the object, as in kube-apiserver."""

_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Resources:
    """Handler of requests for objects of one store."""

    def __init__(
        self, store: ObjectStore, verbs: Verbs, deletion: Deletion, stop: asyncio.Event
    ) -> None:
        self._store, self._verbs, self._deletion = store, verbs, deletion
        self._stop = stop
        self._encoded = watches.Encoded()

    async def watch(
        self, request: web.BaseRequest, target: RequestTarget, initialised: watches.Initialised
    ) -> web.StreamResponse:
        """Answer a watch. `initialised` is called when the initial events are sent."""
        return await watches.watch_objects(
            request, self._store, target, self._encoded, self._stop, initialised
        )

    async def read(
        self, request: web.BaseRequest, target: RequestTarget, verb: str
    ) -> web.StreamResponse:
        """Answer a GET of an object or a collection."""
        if verb == "get":
            return await self._get(request, target)
        return await lists.list_objects(request, self._store, target)

    async def _get(self, request: web.BaseRequest, target: RequestTarget) -> web.Response:
        form = form_of(request, target.requested)
        requested = requests.query_number(request, "resourceVersion")
        if requested != 0:
            await self._store.read_fresh()
            await lists.reach(self._store, requested or 0)
        entry = self._store.get(target.key)
        if entry is None:
            resource = target.served.resource
            raise errors.not_found_error(resource.plural, resource.group, target.name)
        return responses.encoded(form, form.encode(entry))

    async def create(
        self, request: web.BaseRequest, target: RequestTarget, user: User
    ) -> web.Response:
        """Answer a POST to a collection."""
        form, options = form_of(request, target.requested), requests.options(request)
        decoded = await requests.object_body(request, target, options)
        _check_kind(decoded.value, target)
        body = _decoded(decoded.value, target, options.validation)
        call = await self._call(request, target, options, user, decoded)
        written = await self._verbs.create(call, body)
        return responses.write_response(written, form, 201)

    async def update(
        self, request: web.BaseRequest, target: RequestTarget, user: User
    ) -> web.Response:
        """Answer a PUT of an object."""
        form, options = form_of(request, target.requested), requests.options(request)
        decoded = await requests.object_body(request, target, options)
        body = decoded.value
        _check_kind(body, target)
        metadata = body.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise errors.bad_request("metadata.name: Required value: name must be provided")
        call = await self._call(request, target, options, user, decoded)
        check_location(call, metadata)
        if not (target.served.builtin or metadata.get("resourceVersion") or metadata.get("uid")):
            if self._store.latest(target.key) is None:
                resource = target.served.resource
                raise errors.not_found_error(resource.plural, resource.group, target.name)
            raise _version_required(target)
        stored = _decoded(body, target, options.validation)
        written = await self._verbs.change(call, lambda _: _copied(stored))
        return responses.write_response(written, form, 200)

    async def patch(
        self, request: web.BaseRequest, target: RequestTarget, user: User, *, may_create: Any
    ) -> web.Response:
        """Answer a PATCH of an object. `may_create` raises ApiError if apply may not create it."""
        form = form_of(request, target.requested)
        kind, options = request.content_type, requests.options(request)
        decoded = await requests.decoded_body(request, options)
        body = decoded.value
        call = await self._call(request, target, options, user, decoded)
        if kind == APPLY:
            if not request.query.get("fieldManager"):
                raise _manager_required()
            if not isinstance(body, dict):
                raise errors.bad_request("the object provided is not an object")
            _check_kind(body, target, required=True)
            if call.duplicates and options.validation == "Strict":
                why = f"error converting YAML to JSON: {', '.join(call.duplicates)}"
                raise errors.bad_request(f"error strict decoding YAML: {why}")
            if self._store.latest(target.key) is None:
                may_create()
            written = await self._verbs.apply(call, _decoded(body, target, options.validation))
        else:
            written = await self._verbs.change(
                dataclasses.replace(call, patched=True),
                lambda current: _to_stored(
                    _apply_patch(kind, _from_stored(current, target), body, target), target
                ),
            )
        code = 201 if written.created else 200
        return responses.write_response(written, form, code)

    async def delete(
        self, request: web.BaseRequest, target: RequestTarget, user: User
    ) -> web.Response:
        """Answer a DELETE of an object."""
        form, options = form_of(request, target.requested), await _delete_options(request)
        resource = target.served.resource
        call = WriteRequest(
            target.served, target.namespace, target.name, "", requests.options(request), user
        )
        policy = target.served.propagation
        entry, gone = await self._deletion.delete(call, options, policy)
        if not gone or (resource.plural in _RETURNED_WHEN_DELETED and not resource.group):
            response = responses.encoded(form, form.encode(entry))
            if policy == "Orphan" and not any(options.get(name) is not None for name in _CASCADES):
                responses.add_warning(response, _ORPHANED_PODS)
            return response
        details = {
            "name": target.name,
            "kind": resource.plural,
            "uid": entry.value["metadata"]["uid"],
            **({"group": resource.group} if resource.group else {}),
        }
        status = responses.success(details=details)
        return responses.encoded(form, form.encode_object(status))

    async def delete_collection(
        self, request: web.BaseRequest, target: RequestTarget, user: User
    ) -> web.Response:
        """Answer a DELETE of all selected objects with a list of these objects."""
        options = await _delete_options(request)
        chosen = lists.selection(request, target)
        form = form_of(request, target.requested, of_list=True)
        entries: list[StoredEntry] = []

        def choose(item: tuple[str, StoredEntry]) -> None:
            if chosen(item[1].value):
                entries.append(item[1])

        await slices.for_each(list(self._store.list(target.prefix)), choose)
        for entry in entries:
            metadata = entry.value["metadata"]
            call = WriteRequest(
                target.served,
                metadata.get("namespace", ""),
                metadata["name"],
                "",
                requests.options(request),
                user,
            )
            try:
                await self._deletion.delete(call, options, target.served.propagation)
            except StatusError as error:
                if error.reason != "NotFound":
                    raise
        metadata = {"resourceVersion": str(self._store.revision)}
        return await lists.list_response(form, entries, metadata)

    @staticmethod
    async def _call(
        request: web.BaseRequest,
        target: RequestTarget,
        options: WriteOptions,
        user: User,
        decoded: bodies.DecodedBody,
    ) -> WriteRequest:
        strict = options.validation == "Strict"
        duplicates = decoded.duplicate_errors() if strict else decoded.duplicates
        if request.content_type == JSON_PATCH:
            duplicates = tuple(f"json patch {duplicate}" for duplicate in duplicates)
        return WriteRequest(
            target.served,
            target.namespace,
            target.name,
            target.subresource,
            options,
            user,
            len(await requests._read(request)),
            duplicates,
            decoded.is_yaml,
            requested=target.requested if target.requested.alias is not None else None,
        )


def _decoded(body: Object, target: RequestTarget, validation: str) -> Object:
    """Return a body as it is stored. Raises StatusError 400 for fields that an alias lacks."""
    if target.requested.alias is None:
        return body
    if validation == "Strict":
        unknown = target.requested.compiled.prune(copy_value(body))
        if unknown:
            why = errors.strict_decoding(f'unknown field "{field}"' for field in unknown)
            raise errors.undecodable(target.requested.resource, why)
    return _to_stored(body, target)


def _to_stored(body: Object, target: RequestTarget) -> Object:
    alias = target.requested.alias
    return body if alias is None else alias.to_stored(body)


def _from_stored(obj: Object, target: RequestTarget) -> Object:
    alias = target.requested.alias
    return obj if alias is None else alias.from_stored(obj)


def _apply_patch(kind: str, current: Object, body: Any, target: RequestTarget) -> Object:
    if kind == JSON_PATCH:
        with patch_failures_answered():
            result = json_patches.patch(current, body)
    elif not isinstance(body, dict) and kind in (MERGE_PATCH, STRATEGIC_PATCH):
        raise errors.bad_request("the patch must be an object")
    elif kind == MERGE_PATCH:
        result = json_patches.merge_json(current, body)
    elif kind == STRATEGIC_PATCH and target.served.builtin:
        schema = target.requested.schema
        properties = {**schema.get("properties", {}), "metadata": strategic.METADATA_SCHEMA}
        with patch_failures_answered():
            result = strategic.merge_strategic(current, body, {**schema, "properties": properties})
    else:
        known = [JSON_PATCH, MERGE_PATCH, APPLY]
        if target.served.builtin:
            known.append(STRATEGIC_PATCH)
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(known)}"
        )
        raise StatusError(415, "UnsupportedMediaType", message)
    if not isinstance(result, dict) or not isinstance(result.get("metadata"), dict):
        raise errors.bad_request("the result of the patch is not an object")
    if kind == JSON_PATCH:
        depth.check_depth(result, "the patched object")
    return result


def _check_kind(body: Object, target: RequestTarget, *, required: bool = False) -> None:
    resource = target.requested.resource
    kind, version = body.get("kind"), body.get("apiVersion")
    if not target.served.builtin and not (kind and version):
        missing = "Kind" if not kind else "apiVersion"
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): Object "
            f"'{missing}' is missing"
        )
    if required and (not kind or not version):
        raise errors.bad_request("apiVersion and kind must be set in the body of an apply patch")
    if kind in (None, "", resource.kind) and version in (None, "", resource.api_version):
        return
    if kind not in (None, "", resource.kind):
        why = f'no kind "{kind}" is registered for version "{version}"'
        raise errors.undecodable(resource, why, kind)
    message = (
        f"the API version in the data ({version}) does not match the expected API version "
        f"({resource.api_version})"
    )
    raise errors.bad_request(message)


async def _delete_options(request: web.BaseRequest) -> Object:
    """Return the options of a DELETE: those of its body, or of its query if it has no body."""
    body = await requests.body(request)
    schema = typed_bodies.of_kind("meta.DeleteOptions")
    options = dict(typed_bodies.check_types(body, "DeleteOptions", schema))
    if request.body_exists:
        return options
    for name in _CASCADES:
        if name in request.query:
            options[name] = request.query[name]
    if "gracePeriodSeconds" in request.query:
        text = request.query["gracePeriodSeconds"]
        if not _INTEGER.fullmatch(text):
            raise errors.bad_request(
                f"gracePeriodSeconds: Invalid value: {text[:100]!r}: must be a number"
            )
        options["gracePeriodSeconds"] = int(text)
    if request.query.get("dryRun"):
        options["dryRun"] = ["All"]
    return options


def _copied(body: Object) -> Object:
    return {**body, "metadata": dict(body["metadata"])}


def _version_required(target: RequestTarget) -> StatusError:
    cause = invalid_cause("metadata.resourceVersion", 0, "must be specified for an update")
    resource = target.served.resource
    return errors.invalid_error(resource.plural, resource.group, target.name, [cause])


def _manager_required() -> StatusError:
    cause = required_cause("fieldManager", "is required for apply patch")
    return errors.invalid_error("PatchOptions", "meta.k8s.io", "", [cause])
