"""Create-or-update that touches only what we state, and only objects that are ours."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gatehouse.apis.resources import Resource
from gatehouse.kube.client import AlreadyExists, Client, Conflict, NotFound

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "gatehouse"

KEYS = "gatehouse.dev/keys"
"""Annotation in which ``desired`` may list, separated by commas, the label and annotation keys that
it sets because a user asked for them. A key that the previous list had and the new one has not is
removed; without such a record, a key once set would stay for ever."""

ATTEMPTS = 4
"""How often a write is tried against an object that others write at the same time."""


class Outcome(msgspec.Struct, frozen=True):
    """What was done about one object."""

    kind: str
    namespace: str
    name: str
    action: Literal["created", "updated", "unchanged", "deleted"]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name} {self.action}"


class NotOurs(Exception):
    """An object of the wanted name exists and belongs to somebody else; it was left alone."""


async def ensure(client: Client, resource: Resource, desired: Mapping[str, Any]) -> Outcome:
    """Make an object have everything that ``desired`` states, leaving all else as it is.

    Raises NotOurs, or the ApiError of the request that failed.
    """
    metadata = desired["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace", "")
    attempt = 0
    while True:
        attempt += 1
        try:
            action = await _attempt(client, resource, desired, name, namespace)
        except (AlreadyExists, Conflict, NotFound) as error:
            # Somebody wrote between our read and our write. NotFound also means that the
            # namespace is gone, which a second look does not mend: it is raised in the end.
            if attempt == ATTEMPTS or (isinstance(error, NotFound) and attempt > 1):
                raise
        else:
            return Outcome(resource.kind, namespace, name, action)


async def _attempt(
    client: Client, resource: Resource, desired: Mapping[str, Any], name: str, namespace: str
) -> Literal["created", "updated", "unchanged"]:
    try:
        current = await client.get(resource, name, namespace)
    except NotFound:
        await client.create(resource, desired)
        return "created"
    _check_ours(resource, desired, current)
    if covers(current, desired):
        return "unchanged"
    await client.update(resource, merged(current, desired))
    return "updated"


def _check_ours(resource: Resource, desired: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    metadata = current["metadata"]
    where = f"{resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
    label = (metadata.get("labels") or {}).get(MANAGED_BY)
    if label != MANAGER:
        raise NotOurs(
            f"{where} exists and is not ours (label {MANAGED_BY} is {label or 'missing'!r},"
            f" not {MANAGER!r}): remove it, or rename what it was to be made for"
        )
    theirs, mine = controller_of(current), controller_of(desired)
    if theirs and mine and (theirs["kind"], theirs["name"]) != (mine["kind"], mine["name"]):
        raise NotOurs(
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
            for stale in _stale_keys(base, desired):
                for kind in ("labels", "annotations"):
                    result.get(kind, {}).pop(stale, None)
            return result
        case list() | tuple():
            items = current if isinstance(current, list) else []
            return [_merged_item(items, place, item) for place, item in enumerate(desired)]
        case _:
            return desired


def _stale_keys(current: Mapping[str, Any], desired: Mapping[str, Any]) -> set[str]:
    """Give the keys to remove, if the two are the metadata of an object or a template."""
    wanted, present = desired.get("annotations"), current.get("annotations")
    if not (isinstance(wanted, Mapping) and isinstance(present, Mapping) and KEYS in wanted):
        return set()
    stated = {*wanted, *desired.get("labels", ())}
    return {*str(present.get(KEYS, "")).split(",")} - stated - {""}


def _merged_item(items: list[Any], place: int, item: Any) -> Any:
    name = item.get("name") if isinstance(item, Mapping) else None
    if name is not None:
        candidates = [i for i in items if isinstance(i, Mapping) and i.get("name") == name]
    else:
        candidates = items[place : place + 1]
    for candidate in candidates:
        if covers(candidate, item):
            return copy.deepcopy(candidate)
    return copy.deepcopy(item)
