"""Patches of users to the objects that are made for a Gateway. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from gatehouse.apis.data_plane_workload import Patch
from gatehouse.apis.resources import Resource
from gatehouse.apiserver.builtin import schemas
from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.patches import json as json_patch
from gatehouse.apiserver.patches import strategic

Object = dict[str, Any]


class PatchError(Exception):
    """A patch cannot be applied; the message names it."""


def patched(resource: Resource, made: Object, patches: Iterable[Patch], where: str) -> Object:
    """Give an object with patches applied in their order.

    What says whose the object is stays as it is: name, namespace, labels of ours, owner. Raises
    PatchError, which names the patch by ``where`` and its place.
    """
    patches = tuple(patches)
    if not patches:
        return made
    found: Any = made
    for index, patch in enumerate(patches):
        try:
            found = _apply(resource, found, patch)
        except ApiError as error:
            raise PatchError(f"{where}[{index}]: {error.message}") from error
        if not isinstance(found, Mapping) or not isinstance(found.get("metadata", {}), Mapping):
            raise PatchError(f"{where}[{index}]: leaves no object")
    return _still_ours(made, found)


def _apply(resource: Resource, current: Any, patch: Patch) -> Any:
    value = patch.value
    if patch.type == "JSONPatch":
        return json_patch.patch(current, value)
    if not isinstance(value, Mapping):
        raise ApiError(400, "BadRequest", "value is no object")
    # The patch is shared by all Gateways of a class, and merging takes parts of it over.
    copied = msgspec.json.decode(msgspec.json.encode(value))
    if patch.type == "Merge":
        return json_patch.merge(current, copied)
    return strategic.merge(current, copied, _schema(resource))


@cache
def _schema(resource: Resource) -> dict[str, Any]:
    package = resource.group.split(".")[0] or "core"
    return schemas.schema_of(f"{package}.{resource.version}.{resource.kind}")


def _still_ours(made: Object, found: Mapping[str, Any]) -> Object:
    before, after = made["metadata"], dict(found.get("metadata", {}))
    for key in ("name", "namespace", "ownerReferences"):
        after[key] = before[key]
    after["labels"] = {**(after.get("labels") or {}), **before["labels"]}
    return {
        **found,
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "metadata": after,
    }
