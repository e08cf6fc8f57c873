"""What an API server does by itself: empty namespaces, collect garbage, default accounts."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import structlog

from gatehouse.apis import resources
from gatehouse.apiserver import registry
from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.storage.store import Entry, Store
from gatehouse.apiserver.verbs import Options, Verbs

log = structlog.get_logger("gatehouse.apiserver")

Object = dict[str, Any]

NAMESPACES = ("default", "kube-system", "gatehouse-system")
PAUSE = 0.2
"""Seconds between looks; changes in between are taken in together."""

ORPHAN_SECONDS = 60.0
"""How often objects without owners are looked for when nothing was deleted."""


async def prepare(verbs: Verbs) -> None:
    """Make the namespaces that are always there."""
    for name in NAMESPACES:
        try:
            obj = {"metadata": {"name": name}}
            await verbs.create(registry.of(resources.NAMESPACES), "", obj, Options())
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise


async def keep(store: Store, verbs: Verbs) -> None:
    """Work for ever."""
    seen = deletions = -1
    looked = 0.0
    while True:
        try:
            if store.revision != seen:
                seen = store.revision
                await _accounts(store, verbs)
                await _namespaces(store, verbs)
            # Owners go only by deletion; an object made for one that is gone already is rare.
            if store.deletions != deletions or time.monotonic() - looked > ORPHAN_SECONDS:
                deletions, looked = store.deletions, time.monotonic()
                await _orphans(store, verbs)
        except ApiError as error:
            log.debug("housekeeping interrupted", error=str(error))
        except Exception:
            # One object must not keep all others from being looked after.
            log.exception("housekeeping failed")
        await asyncio.sleep(PAUSE)


async def _namespaces(store: Store, verbs: Verbs) -> None:
    for _, entry in list(store.list(registry.of(resources.NAMESPACES).prefix)):
        if entry.value["metadata"].get("deletionTimestamp"):
            await empty_namespace(store, verbs, entry.value["metadata"]["name"])


async def empty_namespace(store: Store, verbs: Verbs, namespace: str) -> Entry | None:
    """Delete everything in a namespace that is being deleted, and itself when it is empty.

    Gives its last state when it is gone; None while something in it is held by a finalizer.
    """
    left = False
    for served in registry.SERVED:
        if not (served.stored and served.resource.namespaced):
            continue
        for _, entry in list(store.list(f"{served.prefix}{namespace}/")):
            try:
                name = entry.value["metadata"]["name"]
                _, gone = await verbs.delete(served, namespace, name, {})
                left |= not gone
            except ApiError as error:
                if error.reason != "NotFound":
                    raise
    return None if left else await verbs.finalize_namespace(namespace)


async def _accounts(store: Store, verbs: Verbs) -> None:
    served = registry.of(resources.SERVICE_ACCOUNTS)
    for _, entry in list(store.list(registry.of(resources.NAMESPACES).prefix)):
        name = entry.value["metadata"]["name"]
        gone = entry.value["metadata"].get("deletionTimestamp")
        if not gone and store.latest(served.key(name, "default")) is None:
            await verbs.create(served, name, {"metadata": {"name": "default"}}, Options())


async def _orphans(store: Store, verbs: Verbs) -> None:
    """Delete objects all of whose owners are gone (background garbage collection)."""
    alive: set[str] = set()
    owned: list[tuple[registry.Served, Entry]] = []
    for served in registry.SERVED:
        if not served.stored:
            continue
        for _, entry in store.list(served.prefix):
            metadata = entry.value["metadata"]
            alive.add(metadata["uid"])
            if metadata.get("ownerReferences"):
                owned.append((served, entry))
    for served, entry in owned:
        metadata = entry.value["metadata"]
        owners = {reference.get("uid") for reference in metadata["ownerReferences"]}
        if owners.isdisjoint(alive) and not metadata.get("deletionTimestamp"):
            try:
                await verbs.delete(served, metadata.get("namespace", ""), metadata["name"], {})
            except ApiError as error:
                if error.reason != "NotFound":
                    raise
            log.info("garbage collected", kind=served.resource.kind, name=metadata["name"])
