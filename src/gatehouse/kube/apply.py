"""Create or update that changes only the fields it sets, and only owned objects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gatehouse.kube.client import AlreadyExists, Client, Conflict, NotFound
from kube_base.types.resource import Resource

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "gatehouse"

APPLIED = "gatehouse.dev/last-applied-fields"
"""Annotation of owned objects: field names of the manifest applied last, without values.

Fields that are in it but not in the new manifest are removed.
"""

_ATTEMPTS = 4
"""Maximum number of attempts against concurrent writes of others."""


class ObjectWriteResult(msgspec.Struct, frozen=True):
    """Result of a write of one object."""

    kind: str
    namespace: str
    name: str
    action: Literal["created", "updated", "unchanged", "deleted"]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name} {self.action}"


class NotOwnedError(Exception):
    """An object of this name exists and has another owner; it was not changed."""


class _Unknown:
    """Type of :data:`UNKNOWN`."""


UNKNOWN = _Unknown()
"""Marks an object of which nothing is known. None means that it does not exist."""


def never_replace(_current: Mapping[str, Any], _desired: Mapping[str, Any]) -> bool:
    """Return False: the object never needs to be recreated."""
    return False


async def create_or_update(
    client: Client,
    resource: Resource,
    desired: Mapping[str, Any],
    *,
    adjust: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]] | None = None,
    must_recreate: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = never_replace,
    last_seen: Mapping[str, Any] | _Unknown | None = UNKNOWN,
) -> ObjectWriteResult:
    """Create an object, or set the fields of ``desired`` and leave all others unchanged.

    Fields that an earlier manifest set and ``desired`` does not are removed.
    ``adjust(current, desired)`` returns the manifest to apply to an existing object;
    ``must_recreate(current, desired)`` returns whether an immutable field requires to delete and
    create it. ``last_seen``: the object as watched, or None if the watch has none; saves a request.
    If it is stale, the server rejects the write and the object is read again.
    Raises NotOwnedError, or the ApiError of the request that failed.
    """
    desired = with_applied_fields(desired)
    metadata = desired["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace", "")
    attempt = 0
    while True:
        attempt += 1
        try:
            if attempt > 1 or isinstance(last_seen, _Unknown):
                last_seen = await _read(client, resource, name, namespace)
            action = await _attempt(client, resource, desired, last_seen, adjust, must_recreate)
        except (AlreadyExists, Conflict, NotFound) as error:
            # Another client wrote between read and write. NotFound may also mean that the namespace
            # does not exist; reading again does not help then, so that it is raised.
            if attempt == _ATTEMPTS or (isinstance(error, NotFound) and attempt > 1):
                raise
        else:
            return ObjectWriteResult(resource.kind, namespace, name, action)


async def _read(
    client: Client, resource: Resource, name: str, namespace: str
) -> Mapping[str, Any] | None:
    try:
        return await client.get(resource, name, namespace)
    except NotFound:
        return None


async def _attempt(
    client: Client,
    resource: Resource,
    desired: Mapping[str, Any],
    current: Mapping[str, Any] | None,
    adjust: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]] | None,
    must_recreate: Callable[[Mapping[str, Any], Mapping[str, Any]], bool],
) -> Literal["created", "updated", "unchanged"]:
    if current is None:
        await client.create(resource, desired)
        return "created"
    _check_owned(resource, desired, current)
    if adjust is not None:
        desired = with_applied_fields(adjust(current, desired))
    if must_recreate(current, desired):
        metadata = current["metadata"]
        await client.delete(
            resource, metadata["name"], metadata.get("namespace", ""), uid=metadata.get("uid", "")
        )
        await client.create(resource, desired)
        return "updated"
    pruned = without_stale(current, desired, _applied_fields(current))
    if pruned == current and is_applied(current, desired):
        return "unchanged"
    await client.update(resource, merge_desired(pruned, desired))
    return "updated"


def with_applied_fields(desired: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``desired`` with the annotation of its field shape."""
    metadata = desired["metadata"]
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != APPLIED}
    unannotated = {**desired, "metadata": {**metadata, "annotations": annotations}}
    shape = msgspec.json.encode(field_shape(unannotated), order="deterministic").decode()
    new_metadata = {**metadata, "annotations": {**annotations, APPLIED: shape}}
    return {**desired, "metadata": new_metadata}


def _applied_fields(current: Mapping[str, Any]) -> Any:
    text = (current["metadata"].get("annotations") or {}).get(APPLIED, "")
    try:
        return msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}


def field_shape(value: Any) -> Any:
    """Return the fields of a value without their values, except names that identify items."""
    match value:
        case Mapping():
            return {
                key: inner if key == "name" and isinstance(inner, str) else field_shape(inner)
                for key, inner in value.items()
            }
        case list() | tuple():
            return [field_shape(item) for item in value]
        case _:
            return 0


def without_stale(current: Any, desired: Any, before: Any) -> Any:
    """Return ``current`` without fields that are in the shape ``before`` but not in ``desired``."""
    match current, desired, before:
        case Mapping(), Mapping(), Mapping():
            return {
                key: without_stale(value, desired[key], before.get(key))
                if key in desired
                else value
                for key, value in current.items()
                if key in desired or key not in before
            }
        case list(), list() | tuple(), list():
            return [
                without_stale(
                    item, _matching_item(desired, index, item), _matching_item(before, index, item)
                )
                for index, item in enumerate(current)
            ]
        case _:
            return current


def _matching_item(items: Sequence[Any], index: int, item: Any) -> Any:
    """Return the item of another list that corresponds to ``item``: by name, else by index."""
    name = item.get("name") if isinstance(item, Mapping) else None
    if name is not None:
        return next((i for i in items if isinstance(i, Mapping) and i.get("name") == name), None)
    return items[index] if index < len(items) else None


def _check_owned(
    resource: Resource, desired: Mapping[str, Any], current: Mapping[str, Any]
) -> None:
    metadata = current["metadata"]
    name = f"{resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
    label = (metadata.get("labels") or {}).get(MANAGED_BY)
    if label != MANAGER:
        raise NotOwnedError(
            f"{name} exists and is not managed by Gatehouse (label {MANAGED_BY} is"
            f" {label or 'missing'!r}, must be {MANAGER!r}): delete it, or rename the owner"
        )
    other, own = controller_reference(current), controller_reference(desired)
    if other and own and (other["kind"], other["name"]) != (own["kind"], own["name"]):
        raise NotOwnedError(
            f"{name} exists and is owned by {other['kind']} {other['name']!r}:"
            f" {own['kind']} {own['name']!r} requires the same name"
        )


def controller_reference(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the ownerReference with ``controller: true``, or None."""
    for reference in obj.get("metadata", {}).get("ownerReferences") or ():
        if reference.get("controller"):
            owner: Mapping[str, Any] = reference
            return owner
    return None


def is_applied(current: Any, desired: Any) -> bool:
    """Return whether everything in ``desired`` is in ``current`` with the same value.

    Lists must have the same length. Their items are compared in the same way, since servers also
    set defaults inside items (``protocol: TCP`` of a port).
    """
    match desired:
        case Mapping():
            return isinstance(current, Mapping) and all(
                key in current and is_applied(current[key], value) for key, value in desired.items()
            )
        case list() | tuple():
            return (
                isinstance(current, list)
                and len(current) == len(desired)
                and all(is_applied(c, d) for c, d in zip(current, desired, strict=True))
            )
        case bool() | None:
            return current is desired
        case _:
            return bool(current == desired)


def merge_desired(current: Any, desired: Any) -> Any:
    """Return ``current`` overlaid with ``desired``: maps are merged, lists replaced.

    A list item that needs no change keeps fields that the server added, such as the node port of a
    Service port. Items are paired by ``name``, or by index if they have none.
    """
    match desired:
        case Mapping():
            base = current if isinstance(current, Mapping) else {}
            result = {key: copy.deepcopy(value) for key, value in base.items()}
            for key, value in desired.items():
                result[key] = merge_desired(base.get(key), value)
            return result
        case list() | tuple():
            items = current if isinstance(current, list) else []
            return [_merged_item(items, index, item) for index, item in enumerate(desired)]
        case _:
            return desired


def _merged_item(items: list[Any], index: int, item: Any) -> Any:
    candidate = _matching_item(items, index, item)
    return copy.deepcopy(candidate if is_applied(candidate, item) else item)
