"""Reconciler for dependent objects: creates and updates desired ones, deletes the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import structlog

from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table
from gatehouse.kube import apply
from gatehouse.kube import client as kube
from kube_base.runtime.backoff import BackoffPolicy
from kube_base.runtime.work_queue import RetryError, WorkQueue
from kube_base.types.objects import ObjectName, ReadOnlyObject
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.dependents")

V = TypeVar("V")

Objects = Mapping[ObjectName, ReadOnlyObject]

_RETRIES = BackoffPolicy(first=0.5, maximum=60.0)
"""Back-off of an object after a failed write."""


class Dependents(Generic[V]):
    """Reconciles objects of one kind, each owned by an object of another kind."""

    def __init__(
        self,
        client: kube.Client,
        resource: Resource,
        owner: Resource,
        objects: Callable[[Resource], Objects],
        build: Callable[[Key, V], Mapping[ObjectName, ReadOnlyObject | None]],
        debounce: float = 0.0,
    ) -> None:
        """Create it without desired state; nothing is written before :meth:`set_desired`.

        ``objects`` returns the objects of a kind as last seen. ``build(owner, value)`` returns the
        desired objects of an owner by namespace and name, with a ``status`` if this controller
        writes it. None as an object leaves it unchanged. ``debounce``: minimum time in seconds
        between two reconciles of an object.
        """
        self._client = client
        self._resource, self._owner = resource, owner
        self._objects = objects
        self._build = build
        self._values: Table[Key, V] | None = None
        """Desired state by owner. None before the first pass: then nothing is deleted."""
        self._desired: dict[ObjectName, tuple[Key, ReadOnlyObject | None]] = {}
        self._queue = WorkQueue(self._reconcile, _RETRIES, debounce=debounce)
        self._started = asyncio.Event()

    def set_desired(self, values: Table[Key, V]) -> None:
        """Replace the desired state, by owner, and reconcile what differs."""
        if values is self._values:
            return
        before: Table[Key, V] = Table() if self._values is None else self._values
        self._values = values
        for owner, old, new in before.diff(values):
            new_objects = {} if new is None else self._build(owner, new)
            for name in {} if old is None else self._build(owner, old):
                if name not in new_objects and self._desired.get(name, (owner,))[0] == owner:
                    self._desired.pop(name, None)
                    self.enqueue(name)
            for name, obj in new_objects.items():
                self._desired[name] = (owner, obj)
                self.enqueue(name)
        self._started.set()

    def enqueue(self, name: ObjectName) -> None:
        """Reconcile an object soon. Call this when it or its owner changed."""
        self._queue.add(name)

    async def run(self) -> None:
        """Reconcile queued objects until cancelled."""
        # Before the desired state is known, every object would be deleted.
        await self._started.wait()
        await self._queue.run()

    async def _reconcile(self, name: ObjectName) -> None:
        try:
            if name in self._desired:
                await self._apply(name, *self._desired[name])
            else:
                await self._remove(name)
        except (kube.ApiError, apply.NotOwnedError) as error:
            log.warning(
                "reconcile failed", kind=self._resource.kind, name=_text(name), error=str(error)
            )
            retry_after = error.retry_after if isinstance(error, kube.ApiError) else None
            raise RetryError(retry_after) from error

    async def _apply(self, name: ObjectName, owner: Key, desired: ReadOnlyObject | None) -> None:
        owner_object = self._objects(self._owner).get((owner[1], owner[2]))
        if owner_object is None or desired is None:
            return
        reference = {
            "apiVersion": self._owner.api_version,
            "kind": self._owner.kind,
            "name": owner[2],
            "uid": owner_object["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": False,
        }
        metadata = {**desired["metadata"], "ownerReferences": [reference]}
        manifest = {key: value for key, value in desired.items() if key != "status"}
        manifest["metadata"] = metadata
        current = self._objects(self._resource).get(name)
        result = await apply.create_or_update(
            self._client, self._resource, manifest, last_seen=current
        )
        log.debug("dependent reconciled", outcome=str(result))
        # A written object comes back by the watch and is reconciled again then.
        if result.action == "unchanged" and current is not None and "status" in desired:
            await self._write_status(current, desired["status"])

    async def _write_status(self, current: ReadOnlyObject, status: ReadOnlyObject) -> None:
        if not apply.is_applied(current.get("status"), status):
            await self._client.update_status(self._resource, {**current, "status": status})

    async def _remove(self, name: ObjectName) -> None:
        current = self._objects(self._resource).get(name)
        if current is None:
            return
        owner = apply.controller_reference(current)
        label = (current["metadata"].get("labels") or {}).get(apply.MANAGED_BY)
        if owner is None or owner["kind"] != self._owner.kind or label != apply.MANAGER:
            return
        try:
            await self._client.delete(
                self._resource, name[1], name[0], uid=current["metadata"]["uid"]
            )
        except kube.NotFound:
            return
        log.debug("dependent deleted", kind=self._resource.kind, name=_text(name))


def _text(name: ObjectName) -> str:
    return "/".join(part for part in name if part)
