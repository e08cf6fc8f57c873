"""Create-or-update that touches only what we state, and only objects that are ours."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gatehouse.apis.resources import Resource
from gatehouse.kube.client import AlreadyExists, Client, Conflict, NotFound

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "gatehouse"

APPLIED = "gatehouse.dev/last-applied-fields"
"""Annotation with the shape of what was stated last (fields, names of list items, no values). What
it has and the newest statement has not is removed; without such a record, a field once stated would
stay for ever."""

ATTEMPTS = 4
"""How often a write is tried against an object that others write at the same time."""


class WriteResult(msgspec.Struct, frozen=True):
    """What was done about one object."""

    kind: str
    namespace: str
    name: str
    action: Literal["created", "updated", "unchanged", "deleted"]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name} {self.action}"


class NotOwnedError(Exception):
    """An object of the wanted name exists and belongs to somebody else; it was left alone."""


class _Unknown:
    """Nothing is known of an object; None says that there is none."""


UNKNOWN = _Unknown()


def never_replace(_current: Mapping[str, Any], _desired: Mapping[str, Any]) -> bool:
    """Say that an object can always be changed into what is wanted."""
    return False


async def create_or_update(
    client: Client,
    resource: Resource,
    desired: Mapping[str, Any],
    *,
    settle: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]] | None = None,
    replaced: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = never_replace,
    known: Mapping[str, Any] | _Unknown | None = UNKNOWN,
) -> WriteResult:
    """Make an object have everything that ``desired`` states, leaving all else as it is.

    What an earlier statement had and this one has not is removed. ``settle(current, desired)``
    gives what to state instead, in view of what there is; ``replaced(current, desired)`` tells
    whether the object can only be made anew, since a field of it cannot change. ``known``: the
    object as a watch has it, or None where that has none, which spares a request; where it is
    behind, the server refuses what follows from it, and is asked.
    Raises NotOurs, or the ApiError of the request that failed.
    """
    desired = with_applied_fields(desired)
    metadata = desired["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace", "")
    attempt = 0
    while True:
        attempt += 1
        try:
            if attempt > 1 or isinstance(known, _Unknown):
                known = await _read(client, resource, name, namespace)
            action = await _attempt(client, resource, desired, known, settle, replaced)
        except (AlreadyExists, Conflict, NotFound) as error:
            # Somebody wrote between our read and our write. NotFound also means that the
            # namespace is gone, which a second look does not mend: it is raised in the end.
            if attempt == ATTEMPTS or (isinstance(error, NotFound) and attempt > 1):
                raise
        else:
            return WriteResult(resource.kind, namespace, name, action)


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
    settle: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]] | None,
    replaced: Callable[[Mapping[str, Any], Mapping[str, Any]], bool],
) -> Literal["created", "updated", "unchanged"]:
    if current is None:
        await client.create(resource, desired)
        return "created"
    _check_ours(resource, desired, current)
    if settle is not None:
        desired = with_applied_fields(settle(current, desired))
    if replaced(current, desired):
        where = current["metadata"]
        await client.delete(
            resource, where["name"], where.get("namespace", ""), uid=where.get("uid", "")
        )
        await client.create(resource, desired)
        return "updated"
    pruned = without_stale(current, desired, _stated_before(current))
    if pruned == current and covers(current, desired):
        return "unchanged"
    await client.update(resource, merged(pruned, desired))
    return "updated"


def with_applied_fields(desired: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give ``desired`` with the annotation of its shape."""
    metadata = desired["metadata"]
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != APPLIED}
    bare = {**desired, "metadata": {**metadata, "annotations": annotations}}
    found = msgspec.json.encode(field_shape(bare), order="deterministic").decode()
    signed = {**metadata, "annotations": {**annotations, APPLIED: found}}
    return {**desired, "metadata": signed}


def _stated_before(current: Mapping[str, Any]) -> Any:
    text = (current["metadata"].get("annotations") or {}).get(APPLIED, "")
    try:
        return msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}


def field_shape(value: Any) -> Any:
    """Give the fields of a value without their values, but for names by which items are found."""
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
    """Give ``current`` without what ``before``, an earlier statement's shape, has of its own."""
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
                without_stale(item, _fellow(desired, place, item), _fellow(before, place, item))
                for place, item in enumerate(current)
            ]
        case _:
            return current


def _fellow(items: Sequence[Any], place: int, item: Any) -> Any:
    """Give the item of another list that belongs to ``item``: by name, or by place."""
    name = item.get("name") if isinstance(item, Mapping) else None
    if name is not None:
        return next((i for i in items if isinstance(i, Mapping) and i.get("name") == name), None)
    return items[place] if place < len(items) else None


def _check_ours(resource: Resource, desired: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    metadata = current["metadata"]
    where = f"{resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
    label = (metadata.get("labels") or {}).get(MANAGED_BY)
    if label != MANAGER:
        raise NotOwnedError(
            f"{where} exists and is not ours (label {MANAGED_BY} is {label or 'missing'!r},"
            f" not {MANAGER!r}): remove it, or rename what it was to be made for"
        )
    theirs, mine = controller_of(current), controller_of(desired)
    if theirs and mine and (theirs["kind"], theirs["name"]) != (mine["kind"], mine["name"]):
        raise NotOwnedError(
            f"{where} exists and belongs to {theirs['kind']} {theirs['name']!r}:"
            f" {mine['kind']} {mine['name']!r} needs the same name"
        )


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give the ownerReference with ``controller: true``, of which there is at most one."""
    for reference in obj.get("metadata", {}).get("ownerReferences") or ():
        if reference.get("controller"):
            owner: Mapping[str, Any] = reference
            return owner
    return None


def covers(current: Any, desired: Any) -> bool:
    """Tell whether everything in ``desired`` is in ``current`` with the same value.

    Lists must have the same length; their items are compared in the same way, since servers fill
    in defaults inside items too (``protocol: TCP`` of a port).
    """
    match desired:
        case Mapping():
            return isinstance(current, Mapping) and all(
                key in current and covers(current[key], value) for key, value in desired.items()
            )
        case list() | tuple():
            return (
                isinstance(current, list)
                and len(current) == len(desired)
                and all(covers(c, d) for c, d in zip(current, desired, strict=True))
            )
        case bool() | None:
            return current is desired
        case _:
            return bool(current == desired)


def merged(current: Any, desired: Any) -> Any:
    """Give ``current`` with ``desired`` put over it: maps merged, lists replaced.

    An item of a list that needs no change keeps what the server added to it, such as the node port
    that a Service port was given: items are paired by ``name``, or by place where they have none.
    """
    match desired:
        case Mapping():
            base = current if isinstance(current, Mapping) else {}
            result = {key: copy.deepcopy(value) for key, value in base.items()}
            for key, value in desired.items():
                result[key] = merged(base.get(key), value)
            return result
        case list() | tuple():
            items = current if isinstance(current, list) else []
            return [_merged_item(items, place, item) for place, item in enumerate(desired)]
        case _:
            return desired


def _merged_item(items: list[Any], place: int, item: Any) -> Any:
    candidate = _fellow(items, place, item)
    return copy.deepcopy(candidate if covers(candidate, item) else item)
