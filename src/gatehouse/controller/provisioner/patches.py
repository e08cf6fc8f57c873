"""User-defined patches of the objects provisioned for a Gateway. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from gatehouse.apis.data_plane_workload import Patch
from kube_base.types.builtin_types import schemas
from kube_base.types.objects import Object
from kube_base.types.patches import json as json_patch
from kube_base.types.patches import strategic
from kube_base.types.patches.errors import MalformedPatchError, PatchFailedError
from kube_base.types.resource import Resource


class PatchError(Exception):
    """Raised if a patch cannot be applied; the message names its field."""


def patched(resource: Resource, obj: Object, patches: Iterable[Patch], field: str) -> Object:
    """Return an object with patches applied in their order.

    Identity and ownership stay unchanged: name, namespace, own labels, owner. Raises PatchError,
    which names the patch by ``field`` and its index.
    """
    patches = tuple(patches)
    if not patches:
        return obj
    result: Any = obj
    for index, patch in enumerate(patches):
        try:
            result = _apply(resource, result, patch)
        except PatchFailedError as error:
            raise PatchError(f"{field}[{index}]: {error}") from error
        if not isinstance(result, Mapping) or not isinstance(result.get("metadata", {}), Mapping):
            raise PatchError(f"{field}[{index}]: result must be an object")
    return _with_identity(obj, result)


def _apply(resource: Resource, current: Any, patch: Patch) -> Any:
    value = patch.value
    if patch.type == "JSONPatch":
        return json_patch.patch(current, value)
    if not isinstance(value, Mapping):
        raise MalformedPatchError("value must be an object")
    # Merging keeps references to parts of the patch, which all Gateways of a class share.
    copied = msgspec.json.decode(msgspec.json.encode(value))
    if patch.type == "Merge":
        return json_patch.merge_json(current, copied)
    return strategic.merge_strategic(current, copied, _schema(resource))


@cache
def _schema(resource: Resource) -> dict[str, Any]:
    package = resource.group.split(".")[0] or "core"
    return schemas.schema_of(f"{package}.{resource.version}.{resource.kind}")


def _with_identity(original: Object, result: Mapping[str, Any]) -> Object:
    metadata, result_metadata = original["metadata"], dict(result.get("metadata", {}))
    for key in ("name", "namespace", "ownerReferences"):
        result_metadata[key] = metadata[key]
    result_metadata["labels"] = {**(result_metadata.get("labels") or {}), **metadata["labels"]}
    return {
        **result,
        "apiVersion": original["apiVersion"],
        "kind": original["kind"],
        "metadata": result_metadata,
    }
