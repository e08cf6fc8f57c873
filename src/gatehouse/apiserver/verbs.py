"""The verbs on objects: admission, generation rules, preconditions, finalizers."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from gatehouse.apis import resources
from gatehouse.apiserver import errors, registry
from gatehouse.apiserver.errors import ApiError, Cause
from gatehouse.apiserver.registry import Served
from gatehouse.apiserver.schema.metadata import check_metadata
from gatehouse.apiserver.schema.walker import Walk
from gatehouse.apiserver.storage.store import Entry, MismatchError, Store

Object = dict[str, Any]

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels, so that no words come out."""


class Options(msgspec.Struct, frozen=True):
    """Of one write."""

    strict: bool = False
    """Unknown fields are an error rather than a warning."""
    silent: bool = False
    """Unknown fields are not even warned of."""
    dry_run: bool = False


class Written(msgspec.Struct, frozen=True):
    """What came of a write, and what to warn of."""

    data: bytes
    warnings: tuple[str, ...] = ()


class Verbs:
    """Create, update, patch and delete."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(
        self, served: Served, namespace: str, obj: Object, options: Options
    ) -> Written:
        """Create an object."""
        metadata = _metadata(obj)
        self._place(served, metadata, namespace)
        if not metadata.get("name") and isinstance(metadata.get("generateName"), str):
            suffix = "".join(secrets.choice(SUFFIX) for _ in range(5))
            metadata["name"] = f"{metadata['generateName'][:58]}{suffix}"
        if metadata.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        warnings = admit(served, obj, options)
        if served.status:
            obj.pop("status", None)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            metadata.pop(field, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = now()
        if served.generation:
            metadata["generation"] = 1
        if served.resource is resources.NAMESPACES:
            _complete_namespace(obj)
        key = served.key(namespace, metadata["name"])
        if self._store.latest(key) is not None:
            raise errors.already_exists(
                served.resource.plural, served.resource.group, metadata["name"]
            )
        if options.dry_run:
            return Written(msgspec.json.encode(obj), warnings)
        entry = await self._store.put(key, obj, 0)
        return Written(entry.data, warnings)

    async def update(
        self, served: Served, namespace: str, name: str, obj: Object, options: Options, sub: str
    ) -> Written:
        """Replace an object, or its status only (``sub``)."""
        return await self.change(served, namespace, name, lambda _: obj, options, sub)

    async def change(
        self,
        served: Served,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        options: Options,
        sub: str = "",
    ) -> Written:
        """Replace an object by what ``change`` makes of it; raises ApiError.

        Nothing is awaited between reading and writing, so that no other write comes between.
        """
        resource = served.resource
        key = served.key(namespace, name)
        current = self._store.latest(key)
        if current is None:
            raise errors.not_found(resource.plural, resource.group, name)
        obj = msgspec.json.decode(msgspec.json.encode(change(_thawed(current))))
        metadata = _metadata(obj)
        self._preconditions(served, name, metadata, current)
        self._place(served, metadata, namespace, name)
        before = current.value
        if sub == "status":
            obj = {**_thawed(current), "status": obj.get("status", {})}
        elif served.status and "status" in before:
            obj["status"] = before["status"]
        elif served.status:
            obj.pop("status", None)
        self._keep_metadata(served, obj, before, status_only=sub == "status")
        warnings = admit(served, obj, options)
        _immutable(served, before, obj)
        if served.generation and _spec(obj) != _spec(before):
            obj["metadata"]["generation"] = before["metadata"].get("generation", 0) + 1
        if obj == before or options.dry_run:
            return Written(msgspec.json.encode(obj), warnings)
        if obj["metadata"].get("deletionTimestamp") and not _held(served, obj):
            return Written((await self._store.delete(key, current.revision)).data, warnings)
        entry = await self._store.put(key, obj, current.revision)
        return Written(entry.data, warnings)

    async def delete(
        self, served: Served, namespace: str, name: str, options: Object
    ) -> tuple[Entry, bool]:
        """Delete an object; gives its last state, and whether it is gone already."""
        resource = served.resource
        key = served.key(namespace, name)
        current = self._store.latest(key)
        if current is None:
            raise errors.not_found(resource.plural, resource.group, name)
        metadata = current.value["metadata"]
        for field in ("uid", "resourceVersion"):
            wanted = (options.get("preconditions") or {}).get(field)
            if wanted and wanted != metadata[field]:
                why = f"the {field} in the precondition ({wanted}) does not match"
                raise errors.conflict(resource.plural, resource.group, name, why)
        if "All" in (options.get("dryRun") or ()):
            return current, True
        if not _held(served, current.value):
            return await self._store.delete(key, current.revision), True
        if metadata.get("deletionTimestamp"):
            return current, False
        obj = _thawed(current)
        obj["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": 0}
        if "generation" in metadata:
            obj["metadata"]["generation"] = metadata["generation"] + 1
        if resource is resources.NAMESPACES:
            obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        try:
            return await self._store.put(key, obj, current.revision), False
        except MismatchError as error:
            raise errors.conflict(resource.plural, resource.group, name) from error

    async def finalize_namespace(self, name: str) -> Entry | None:
        """Remove a namespace that is being deleted and has been emptied; None if it may not go."""
        key = registry.of(resources.NAMESPACES).key("", name)
        current = self._store.latest(key)
        if current is None or not current.value["metadata"].get("deletionTimestamp"):
            return None
        if current.value["metadata"].get("finalizers"):
            return None
        return await self._store.delete(key, current.revision)

    def _place(
        self, served: Served, metadata: Object, namespace: str, name: str | None = None
    ) -> None:
        """Check that the object lies where the request says, and that its namespace exists."""
        if name is not None and metadata.get("name", name) != name:
            message = (
                f"the name of the object ({metadata['name']}) does not match the name on the "
                f"URL ({name})"
            )
            raise errors.bad_request(message)
        if not served.resource.namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.setdefault("namespace", namespace) != namespace:
            message = (
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
            raise errors.bad_request(message)
        key = registry.of(resources.NAMESPACES).key("", namespace)
        owner = self._store.latest(key)
        if owner is None:
            raise errors.not_found("namespaces", "", namespace)
        if name is None and owner.value["metadata"].get("deletionTimestamp"):
            message = f"namespace {namespace} is being terminated: nothing new is created in it"
            raise ApiError(403, "Forbidden", message)

    def _preconditions(self, served: Served, name: str, metadata: Object, current: Entry) -> None:
        resource, have = served.resource, current.value["metadata"]
        version = metadata.get("resourceVersion")
        if version and version != have["resourceVersion"]:
            raise errors.conflict(resource.plural, resource.group, name)
        if metadata.get("uid", have["uid"]) != have["uid"]:
            why = f"Precondition failed: UID in precondition: {metadata['uid']}"
            raise errors.conflict(resource.plural, resource.group, name, why)

    @staticmethod
    def _keep_metadata(served: Served, obj: Object, before: Object, *, status_only: bool) -> None:
        old = before["metadata"]
        if status_only:
            obj["metadata"] = dict(old)
        for field in (
            "uid",
            "creationTimestamp",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "name",
            "namespace",
            "resourceVersion",
        ):
            if field in old:
                obj["metadata"][field] = old[field]
            else:
                obj["metadata"].pop(field, None)
        obj["metadata"].pop("managedFields", None)
        obj["apiVersion"], obj["kind"] = before["apiVersion"], served.resource.kind


def admit(served: Served, obj: Object, options: Options) -> tuple[str, ...]:
    """Default, prune and validate ``obj`` in place; gives warnings. Raises ApiError."""
    resource = served.resource
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    metadata = obj["metadata"]
    causes = list(_name_causes(served, metadata))
    walk = Walk()
    metadata_causes, unknown = check_metadata(metadata)
    causes += metadata_causes
    walk.unknown += unknown
    rest = {key: value for key, value in obj.items() if key not in _HEAD}
    walk.value({"type": "object", **served.schema}, rest, "")
    if walk.unknown and options.strict:
        shown = ", ".join(f'unknown field "{field}"' for field in walk.unknown)
        raise errors.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be '
            f"handled as a {resource.kind}: strict decoding error: {shown}"
        )
    causes += [_cleaned(cause) for cause in walk.causes]
    for key in [key for key in obj if key not in _HEAD]:
        del obj[key]
    obj |= rest
    if not causes and served.rule is not None:
        causes += list(served.rule(obj))
    if causes:
        raise errors.invalid(resource.kind, resource.group, str(metadata.get("name", "")), causes)
    if options.silent:
        return ()
    return tuple(f'unknown field "{field}"' for field in walk.unknown)


_HEAD = ("apiVersion", "kind", "metadata")


def _cleaned(cause: Cause) -> Cause:
    return Cause(cause.reason, cause.message.replace(": .", ": "), cause.field.lstrip("."))


def _name_causes(served: Served, metadata: Object) -> list[Cause]:
    name = metadata.get("name")
    if not name:
        message = "Required value: name or generateName is required"
        return [Cause("FieldValueRequired", message, "metadata.name")]
    pattern = served.name_pattern
    if isinstance(name, str) and len(name) <= 253 and re.fullmatch(pattern, name):
        return []
    message = f"Invalid value: \"{name}\": a lowercase RFC 1123 name must match '{pattern}'"
    return [Cause("FieldValueInvalid", message, "metadata.name")]


def _immutable(served: Served, before: Object, obj: Object) -> None:
    if served.resource is resources.SECRETS and before.get("type") != obj.get("type"):
        cause = Cause("FieldValueInvalid", "Invalid value: field is immutable", "type")
        raise errors.invalid("Secret", "", obj["metadata"]["name"], [cause])


def _metadata(obj: Any) -> Object:
    if not isinstance(obj, dict):
        raise errors.bad_request("the object provided is no JSON object")
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise errors.bad_request("metadata must be an object")
    return metadata


def _spec(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in (*_HEAD, "status")}


def _complete_namespace(obj: Object) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"][
        "name"
    ]
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}


def _held(served: Served, obj: Object) -> bool:
    """Whether something must happen before a deleted object may go; namespaces are emptied."""
    return served.resource is resources.NAMESPACES or bool(obj["metadata"].get("finalizers"))


def _thawed(entry: Entry) -> Object:
    """Give a copy that may be changed."""
    value: Object = msgspec.json.decode(entry.data)
    return value


def now() -> str:
    """Give the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
