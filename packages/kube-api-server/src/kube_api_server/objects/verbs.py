"""Create, update, patch and apply: admission, generation, preconditions, field ownership."""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from kube_api_server import errors, fields, offload
from kube_api_server.errors import Cause, StatusError
from kube_api_server.objects import timestamps, uids
from kube_api_server.objects.admission import Admission, check_location, deletion_blocked
from kube_api_server.objects.status_metadata import written_with_status
from kube_api_server.objects.write_request import WriteRequest, WriteResult
from kube_api_server.storage.entries import MismatchError, StoredEntry
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object, copy_value

_Change = Callable[[Object], Object]

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names. No vowels, so that no words are formed."""

ATTEMPTS = 10
"""Maximum attempts of a write that conflicts with other servers on the same store."""

_CONFLICT = 409

_SYSTEM_METADATA = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "name",
    "namespace",
    "resourceVersion",
)

_STATUS_PARTS = ("status", "approval")
"""Subresources that change the status only."""

_FIXED_SPECS = ("certificatesigningrequests", "namespaces")
"""Kinds whose spec no update changes."""


class Verbs:
    """Writes to one store."""

    def __init__(self, store: ObjectStore, admission: Admission) -> None:
        self._store, self._admission = store, admission

    async def create(self, call: WriteRequest, obj: Object) -> WriteResult:
        """Create an object. Raises ApiError."""
        metadata = metadata_of(obj)
        if metadata.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        generate = metadata.get("generateName") if not metadata.get("name") else None
        for attempt in range(ATTEMPTS):
            if isinstance(generate, str) and generate:
                suffix = "".join(secrets.choice(SUFFIX) for _ in range(5))
                metadata["name"] = f"{generate[:58]}{suffix}"
            try:
                return await self._create(call, obj if not attempt else copy_value(obj))
            except StatusError as error:
                if error.reason != "AlreadyExists" or not generate or attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    async def _create(self, call: WriteRequest, obj: Object) -> WriteResult:
        served = call.served
        metadata = obj["metadata"]
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "uid", "selfLink"):
            metadata.pop(field, None)
        if served.status and not served.create_with_status:
            obj.pop("status", None)

        def prepared() -> tuple[str, ...]:
            warnings = self._admission.prepare(call, obj, None)
            if not call.applied:
                _record_ownership(call, None, obj)
            return warnings

        warnings = await offload.run_offloaded(prepared, call.size)
        metadata["uid"] = uids.new()
        warnings += await self._admission.run_admission_policies(call, obj, None, call.size)
        name = metadata["name"]
        metadata["creationTimestamp"] = timestamps.now()
        if served.generation:
            metadata["generation"] = 1
        else:
            metadata.pop("generation", None)
        self._admission.finish(call, obj, None)
        obj = _ordered(obj)
        key = served.key(call.namespace, name)
        if self._store.latest(key) is not None:
            raise errors.already_exists(served.resource.plural, served.resource.group, name)
        try:
            # No await between the check and the write.
            with self._admission.reserve(call, obj, None):
                if call.options.dry_run:
                    return WriteResult(obj, msgspec.json.encode(obj), warnings, created=True)
                entry = await self._store.put(key, obj, 0)
        except MismatchError as error:
            raise errors.already_exists(
                served.resource.plural, served.resource.group, name
            ) from error
        return WriteResult(entry.value, entry.data, warnings, created=True)

    async def change(self, call: WriteRequest, change: _Change) -> WriteResult:
        """Replace an object by the result of `change` for a copy of it. Raises ApiError.

        Small objects have no await between reading and writing, so within one process no other
        write comes between them. `change` is called again if another write came between them, or
        another process had written a change that this process had not seen yet.
        """
        resource = call.served.resource
        for _ in range(ATTEMPTS):
            async with self._store.sync(call.key):
                current = await self._store.known(call.key)
                if current is None:
                    raise errors.not_found_error(resource.plural, resource.group, call.name)
                size = max(call.size, len(current.data))
                changed = functools.partial(_changed, change, current)
                try:
                    new = await offload.run_offloaded(changed, size)
                    return await self._change(call, current, new, size)
                except MismatchError:
                    await self._store.read_fresh()
                except errors.StatusError as error:
                    if error.code != _CONFLICT or not await self._store.outdated(call.key, current):
                        raise
        raise errors.conflict(resource.plural, resource.group, call.name)

    async def apply(self, call: WriteRequest, applied: Object) -> WriteResult:
        """Apply an object (server-side apply) or create it. Raises StatusError."""
        call = dataclasses.replace(call, applied=True)
        options, served = call.options, call.served
        metadata = metadata_of(applied)
        metadata.setdefault("name", call.name)
        check_location(call, metadata)
        # Defaults are set after the merge: an applier owns only fields of its own object.
        if served.status:
            applied = _part_applied(call, applied)
        known_fields = functools.partial(
            self._admission.known_fields, call, applied, defaults=False
        )
        warnings = await offload.run_offloaded(known_fields, call.size)

        def merged(live: Object | None) -> Object:
            try:
                return fields.apply_fields(
                    live,
                    applied,
                    served.schema,
                    manager=options.manager,
                    force=options.force,
                    api_version=served.resource.api_version,
                    now=timestamps.now(),
                    subresource=call.subresource,
                )
            except fields.ConflictsError as error:
                raise _conflicts(error) from error
            except ValueError as error:
                raise errors.bad_request(str(error)) from error

        if self._store.latest(call.key) is None and not call.subresource:
            if metadata.get("resourceVersion") or metadata.get("uid"):
                why = "the object to be applied has a resourceVersion or uid and does not exist"
                raise errors.conflict(served.resource.plural, served.resource.group, call.name, why)
            new = await offload.run_offloaded(functools.partial(merged, None), call.size)
            written = await self._create(call, new)
        else:
            written = await self.change(call, merged)
        # The decoding of `applied` warned of fields that the merged object does not contain.
        warnings = tuple(dict.fromkeys((*warnings, *written.warnings)))
        return WriteResult(written.value, written.data, warnings, written.created)

    async def _change(
        self, call: WriteRequest, current: StoredEntry, new: Object, size: int
    ) -> WriteResult:
        served, before = call.served, current.value
        metadata = metadata_of(new)
        check_location(call, metadata)
        self._preconditions(call, metadata, current)
        obj, warnings = await offload.run_offloaded(lambda: self._prepared(call, new, before), size)
        warnings += await self._admission.run_admission_policies(call, obj, before, size)
        if served.generation and _spec(served, obj) != _spec(served, before):
            obj["metadata"]["generation"] = before["metadata"].get("generation", 0) + 1
        self._admission.finish(call, obj, before)
        if obj == before or call.options.dry_run:
            return WriteResult(obj, msgspec.json.encode(obj), warnings)
        obj = _ordered(obj)
        if obj["metadata"].get("deletionTimestamp") and not deletion_blocked(served, obj):
            await self._store.delete(call.key, current.revision)
            return WriteResult(obj, msgspec.json.encode(obj), warnings)
        with self._admission.reserve(call, obj, before):
            entry = await self._store.put(call.key, obj, current.revision)
        return WriteResult(entry.value, entry.data, warnings)

    def _prepared(
        self, call: WriteRequest, new: Object, before: Object
    ) -> tuple[Object, tuple[str, ...]]:
        """Return the changed object with its owners, and warnings. Raises ApiError."""
        tracked = new["metadata"].get("managedFields")
        obj = self._part(call, new, before)
        _restore_system_metadata(obj["metadata"], before["metadata"])
        warnings = self._admission.prepare(call, obj, before)
        if tracked and tracked != before["metadata"].get("managedFields"):
            obj["metadata"]["managedFields"] = tracked
        elif not call.unowned:
            _record_ownership(call, before, obj, cleared=tracked == [])
        return obj, warnings

    @staticmethod
    def _part(call: WriteRequest, new: Object, before: Object) -> Object:
        """Return the object with the part that the request may write."""
        match call.subresource:
            case "status" | "approval":
                metadata = copy_value(before["metadata"])
                for field in written_with_status(call.served):
                    metadata.pop(field, None)
                    if new["metadata"].get(field):
                        metadata[field] = new["metadata"][field]
                obj: Object = {**copy_value(before), "metadata": metadata}
                obj["status"] = new.get("status", {})
                if new.get("status") is None:
                    obj.pop("status", None)
                return obj
            case "finalize":
                obj = dict(copy_value(before))
                obj["spec"] = {**obj.get("spec", {}), **(new.get("spec") or {})}
                return obj
        if call.served.status:
            new.pop("status", None)
            if "status" in before:
                new["status"] = before["status"]
        if call.served.resource.plural in _FIXED_SPECS:
            new["spec"] = before.get("spec", {})
        return new

    @staticmethod
    def _preconditions(call: WriteRequest, metadata: Object, current: StoredEntry) -> None:
        resource, have = call.served.resource, current.value["metadata"]
        version = metadata.get("resourceVersion")
        if version and version != have["resourceVersion"]:
            raise errors.conflict(resource.plural, resource.group, call.name)
        if metadata.get("uid", have["uid"]) != have["uid"]:
            if call.patched:
                cause = Cause(
                    "FieldValueInvalid", "Invalid value: field is immutable", "metadata.uid"
                )
                raise errors.invalid_error(resource.kind, resource.group, call.name, [cause])
            why = (
                f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: "
                f"{have['uid']}"
            )
            raise errors.conflict(resource.plural, resource.group, call.name, why)


def metadata_of(obj: Any) -> Object:
    """Return an object's metadata, added if absent. Raises ApiError 400."""
    if not isinstance(obj, dict):
        raise errors.bad_request("the object provided is not a JSON object")
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise errors.bad_request("metadata must be an object")
    return metadata


def mutable_copy(entry: StoredEntry) -> Object:
    """Return a copy of an object that may be changed."""
    value: Object = msgspec.json.decode(entry.data)
    return value


def _changed(change: _Change, current: StoredEntry) -> Object:
    return change(mutable_copy(current))


def _ordered(obj: Object) -> Object:
    """Return the object with apiVersion, kind and metadata first, as is customary."""
    head: Object = {key: obj[key] for key in ("apiVersion", "kind", "metadata") if key in obj}
    return {**head, **obj}


def _part_owned(call: WriteRequest, obj: Object) -> Object:
    """Return the part of an object that a request can own: the status, or everything else."""
    if call.subresource in _STATUS_PARTS:
        head = ("managedFields", *written_with_status(call.served))
        metadata = {key: obj["metadata"][key] for key in head if key in obj["metadata"]}
        return (
            {"metadata": metadata, "status": obj["status"]}
            if "status" in obj
            else {"metadata": metadata}
        )
    if not call.served.status:
        return obj
    return {key: value for key, value in obj.items() if key != "status"}


def _part_applied(call: WriteRequest, applied: Object) -> Object:
    """Return the part of an applied object that the request may change."""
    if call.subresource in _STATUS_PARTS:
        written = written_with_status(call.served)
        head = ("name", "namespace", "uid", "resourceVersion", "managedFields", *written)
        metadata = {key: item for key, item in applied["metadata"].items() if key in head}
        part: Object = {
            key: applied[key] for key in ("apiVersion", "kind", "status") if key in applied
        }
        return {**part, "metadata": metadata}
    return {key: item for key, item in applied.items() if key != "status"}


def _restore_system_metadata(metadata: Object, old: Object) -> None:
    for field in _SYSTEM_METADATA:
        if field in old:
            metadata[field] = old[field]
        else:
            metadata.pop(field, None)


def _record_ownership(
    call: WriteRequest, before: Object | None, obj: Object, *, cleared: bool = False
) -> None:
    """Record the owner of the fields that the write changed."""
    metadata = obj["metadata"]
    if before is not None and not cleared and "managedFields" not in metadata:
        previous = before["metadata"].get("managedFields")
        if previous is not None:
            metadata["managedFields"] = previous
    subresource = call.subresource if call.subresource in (*_STATUS_PARTS, "scale") else ""
    managed_fields = fields.update(
        _part_owned(call, before) if before is not None else None,
        _part_owned(call, obj),
        call.served.schema,
        manager=call.options.manager,
        api_version=call.served.resource.api_version,
        now=timestamps.now(),
        subresource=subresource,
    )
    if managed_fields:
        metadata["managedFields"] = managed_fields
    else:
        metadata.pop("managedFields", None)


def _spec(served: Any, obj: Object) -> Object:
    left = ("apiVersion", "kind", "metadata", *(("status",) if served.status else ()))
    return {key: value for key, value in obj.items() if key not in left}


def _conflicts(error: fields.ConflictsError) -> StatusError:
    message, causes = fields.render_conflicts(error.conflicts)
    return StatusError(409, "Conflict", message, causes=[Cause(*cause) for cause in causes])
