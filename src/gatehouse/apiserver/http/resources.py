"""HTTP verbs on objects and collections."""

from __future__ import annotations

import asyncio
import functools
import re
from typing import Any

from aiohttp import web

from gatehouse.apiserver import errors
from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.http import bodies, depth, lists, requests, responses, watches
from gatehouse.apiserver.http.negotiation import form_of
from gatehouse.apiserver.http.requests import APPLY, Target
from gatehouse.apiserver.identity.users import User
from gatehouse.apiserver.objects.deletion import Deletion
from gatehouse.apiserver.objects.verbs import Verbs
from gatehouse.apiserver.objects.write_request import WriteRequest
from gatehouse.apiserver.patches import json as json_patches
from gatehouse.apiserver.patches import strategic
from gatehouse.apiserver.storage.store import Store

Object = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Resources:
    """Handler of requests for objects of one store."""

    def __init__(self, store: Store, verbs: Verbs, deletion: Deletion, stop: asyncio.Event) -> None:
        self._store, self._verbs, self._deletion = store, verbs, deletion
        self._stop = stop
        self._encoded = watches.Encoded()

    async def read(self, request: web.BaseRequest, target: Target, verb: str) -> web.StreamResponse:
        """Answer a GET of an object or a collection."""
        if verb == "get":
            return await self._get(request, target)
        if verb == "watch":
            return await watches.watch_objects(
                request, self._store, target, self._encoded, self._stop
            )
        return responses.raw(await lists.list_objects(request, self._store, target))

    async def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        if request.query.get("resourceVersion") != "0":
            await self._store.read_fresh()
        entry = self._store.get(target.key)
        if entry is None:
            resource = target.served.resource
            raise errors.not_found(resource.plural, resource.group, target.name)
        return responses.raw(form_of(request, target.requested).encode(entry))

    async def create(self, request: web.BaseRequest, target: Target, user: User) -> web.Response:
        """Answer a POST to a collection."""
        body = await requests.body(request)
        options = requests.options(request)
        if not isinstance(body, dict):
            raise errors.bad_request("the object provided is not a JSON object")
        _check_kind(body, target)
        await _check_duplicates(request, target, options.validation)
        body = _to_stored(body, target)
        call = WriteRequest(target.served, target.namespace, "", "", options, user)
        written = await self._verbs.create(call, body)
        return responses.write_response(written, form_of(request, target.requested), 201)

    async def update(self, request: web.BaseRequest, target: Target, user: User) -> web.Response:
        """Answer a PUT of an object."""
        body = await requests.body(request)
        options = requests.options(request)
        if not isinstance(body, dict):
            raise errors.bad_request("the object provided is not a JSON object")
        _check_kind(body, target)
        await _check_duplicates(request, target, options.validation)
        if not isinstance(body.get("metadata"), dict) or not body["metadata"].get("name"):
            raise errors.bad_request("metadata.name: Required value: name must be provided")
        if not target.served.builtin and not body["metadata"].get("resourceVersion"):
            raise _version_required(target)
        call = self._call(target, options, user)
        stored = _to_stored(body, target)
        written = await self._verbs.change(call, lambda _: _copied(stored))
        return responses.write_response(written, form_of(request, target.requested), 200)

    async def patch(
        self, request: web.BaseRequest, target: Target, user: User, *, may_create: Any
    ) -> web.Response:
        """Answer a PATCH of an object. `may_create` raises ApiError if apply may not create it."""
        kind, options = request.content_type, requests.options(request)
        body = await requests.body(request)
        call = self._call(target, options, user)
        if kind == APPLY:
            if not request.query.get("fieldManager"):
                raise _manager_required()
            if not isinstance(body, dict):
                raise errors.bad_request("the object provided is not an object")
            _check_kind(body, target, required=True)
            if self._store.latest(target.key) is None:
                may_create()
            written = await self._verbs.apply(call, _to_stored(body, target))
        else:
            written = await self._verbs.change(
                call,
                lambda current: _to_stored(
                    _apply_patch(kind, _from_stored(current, target), body, target), target
                ),
            )
        code = 201 if written.created else 200
        return responses.write_response(written, form_of(request, target.requested), code)

    async def delete(self, request: web.BaseRequest, target: Target, user: User) -> web.Response:
        """Answer a DELETE of an object."""
        options = await _delete_options(request)
        resource = target.served.resource
        call = WriteRequest(
            target.served, target.namespace, target.name, "", requests.options(request), user
        )
        entry, gone = await self._deletion.delete(call, options)
        if not gone:
            return responses.raw(form_of(request, target.requested).encode(entry), 200)
        details = {
            "name": target.name,
            "kind": resource.plural,
            "uid": entry.value["metadata"]["uid"],
            **({"group": resource.group} if resource.group else {}),
        }
        return responses.ok_response(details)

    async def delete_collection(
        self, request: web.BaseRequest, target: Target, user: User
    ) -> web.Response:
        """Answer a DELETE of all selected objects with a list of these objects."""
        options = await _delete_options(request)
        chosen, form = lists.selection(request, target), form_of(request, target.requested)
        found = [e for _, e in list(self._store.list(target.prefix)) if chosen(e.value)]
        for entry in found:
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
                await self._deletion.delete(call, options)
            except ApiError as error:
                if error.reason != "NotFound":
                    raise
        metadata = {"resourceVersion": str(self._store.revision)}
        return responses.raw(form.encode_list(found, metadata))

    @staticmethod
    def _call(target: Target, options: Any, user: User) -> WriteRequest:
        return WriteRequest(
            target.served, target.namespace, target.name, target.subresource, options, user
        )


def _to_stored(body: Object, target: Target) -> Object:
    alias = target.requested.alias
    return body if alias is None else alias.to_stored(body)


def _from_stored(obj: Object, target: Target) -> Object:
    alias = target.requested.alias
    return obj if alias is None else alias.from_stored(obj)


def _apply_patch(kind: str, current: Object, body: Any, target: Target) -> Object:
    if kind == JSON_PATCH:
        result = json_patches.patch(current, body)
    elif not isinstance(body, dict) and kind in (MERGE_PATCH, STRATEGIC_PATCH):
        raise errors.bad_request("the patch must be an object")
    elif kind == MERGE_PATCH:
        result = json_patches.merge(current, body)
    elif kind == STRATEGIC_PATCH and target.served.builtin:
        schema = target.served.schema
        properties = {**schema.get("properties", {}), "metadata": strategic.METADATA}
        result = strategic.merge(current, body, {**schema, "properties": properties})
    else:
        known = [JSON_PATCH, MERGE_PATCH, APPLY]
        if target.served.builtin:
            known.append(STRATEGIC_PATCH)
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(known)}"
        )
        raise ApiError(415, "UnsupportedMediaType", message)
    if not isinstance(result, dict) or not isinstance(result.get("metadata"), dict):
        raise errors.bad_request("the result of the patch is not an object")
    if kind == JSON_PATCH and depth.exceeds_limit(result):
        raise depth.too_deep("the patched object")
    return result


def _check_kind(body: Object, target: Target, *, required: bool = False) -> None:
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
        message = (
            f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: no '
            f'kind "{kind}" is registered for version "{version}"'
        )
        raise errors.bad_request(message)
    message = (
        f"the API version in the data ({version}) does not match the expected API version "
        f"({resource.api_version})"
    )
    raise errors.bad_request(message)


async def _check_duplicates(request: web.BaseRequest, target: Target, validation: str) -> None:
    if validation != "Strict":
        return
    data = await request.read()
    if data[:1] != b"{":
        return
    found = await bodies.run(functools.partial(bodies.duplicates, data), data)
    if found:
        resource = target.served.resource
        shown = ", ".join(f'duplicate field "{name}"' for name in found)
        raise errors.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: strict decoding error: {shown}"
        )


async def _delete_options(request: web.BaseRequest) -> Object:
    body = await requests.body(request)
    if not isinstance(body, dict):
        raise errors.bad_request("DeleteOptions must be an object")
    options = dict(body)
    for name in ("propagationPolicy", "orphanDependents"):
        if name in request.query:
            options[name] = request.query[name]
    if "gracePeriodSeconds" in request.query:
        text = request.query["gracePeriodSeconds"]
        if not _INTEGER.fullmatch(text):
            raise errors.bad_request(
                f"gracePeriodSeconds: Invalid value: {text[:100]!r}: must be a number"
            )
        options["gracePeriodSeconds"] = int(text)
    if request.query.get("dryRun") or "All" in (options.get("dryRun") or ()):
        options["dryRun"] = ["All"]
    return options


def _copied(body: Object) -> Object:
    return {**body, "metadata": dict(body["metadata"])}


def _version_required(target: Target) -> ApiError:
    cause = errors.Cause(
        "FieldValueInvalid",
        "Invalid value: 0: must be specified for an update",
        "metadata.resourceVersion",
    )
    resource = target.served.resource
    return errors.invalid(resource.plural, resource.group, target.name, [cause])


def _manager_required() -> ApiError:
    cause = errors.Cause(
        "FieldValueRequired", "Required value: is required for apply patch", "fieldManager"
    )
    return errors.invalid("PatchOptions", "meta.k8s.io", "", [cause])
