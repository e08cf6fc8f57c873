"""CRDs that a server installs at start, and updates unless users have changed them."""

from __future__ import annotations

import asyncio
from importlib.resources.abc import Traversable

import structlog

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.definition_files import (
    DefinitionError,
    read_definitions,
    served_digest,
)
from kube_api_server.errors import StatusError
from kube_api_server.objects import crds
from kube_base.types.objects import Object

log = structlog.get_logger("apiserver")

_MANAGER = "kube-apiserver"


async def install_definitions(
    context: ControllerContext, directory: Traversable, digest: str, *, checked: bool
) -> None:
    """Create or update the CRDs of a directory. `digest` is the name of their annotation.

    `checked`: they are known to pass the check of a CRD. Raises DefinitionError.
    """
    for definition in await asyncio.to_thread(read_definitions, directory, digest):
        try:
            await _define(context, definition, digest, checked=checked)
        except StatusError as error:
            raise DefinitionError(f"{definition['metadata']['name']}: {error}") from error
        await _disown(context, definition, digest)


async def _define(
    context: ControllerContext, definition: Object, digest: str, *, checked: bool
) -> None:
    """Create or update a bundled CRD, unless it has been changed. Raises StatusError."""
    served = context.kind(crds.GROUP, crds.PLURAL)
    name = definition["metadata"]["name"]
    entry = context.store.get(served.key("", name))
    if entry is None:
        await context.create(crds.GROUP, crds.PLURAL, definition, _MANAGER, checked=checked)
        return
    annotations = entry.value["metadata"].get("annotations") or {}
    changed_by_user = annotations.get(digest) != served_digest(entry.value)
    if changed_by_user or annotations[digest] == definition["metadata"]["annotations"][digest]:
        return

    def change(current: Object) -> Object:
        metadata = dict(current["metadata"])
        metadata["annotations"] = {**annotations, **definition["metadata"]["annotations"]}
        return {**current, "metadata": metadata, "spec": {**definition["spec"]}}

    try:
        await context.verbs.change(context.call(served, definition, _MANAGER), change)
    except StatusError as error:
        log.warning("bundled CRD not updated", name=name, error=str(error))


async def _disown(context: ControllerContext, definition: Object, digest: str) -> None:
    """Drop the ownership of all fields of a CRD except the digest.

    Else a server-side apply of the same CRD from another source would conflict. Without any owner
    it would conflict as well, with the manager of former writes.
    """
    served = context.kind(crds.GROUP, crds.PLURAL)
    entry = context.store.get(served.key("", definition["metadata"]["name"]))
    if entry is None or _disowned(entry.value, digest) == entry.value:
        return
    try:
        call = context.call(served, definition, _MANAGER)
        await context.verbs.change(call, lambda current: _disowned(current, digest))
    except StatusError as error:
        name = definition["metadata"]["name"]
        log.warning("ownership of bundled CRD not changed", name=name, error=str(error))


def _disowned(current: Object, digest: str) -> Object:
    """Return a CRD whose managedFields have only the digest for this server."""
    metadata = current["metadata"]
    managed = [
        {**owner, "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{digest}": {}}}}}
        if owner.get("manager") == _MANAGER and not owner.get("subresource")
        else owner
        for owner in metadata.get("managedFields") or ()
    ]
    return {**current, "metadata": {**metadata, "managedFields": managed}} if managed else current
