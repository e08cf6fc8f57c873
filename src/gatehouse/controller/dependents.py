"""Keeps objects that are made for others, and goes on until they are as wanted; the rest goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import structlog

from gatehouse.apis.resources import Resource
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table
from gatehouse.kube import apply
from gatehouse.kube import client as kube

log = structlog.get_logger("gatehouse.dependents")

V = TypeVar("V")

Name = tuple[str, str]
Object = Mapping[str, Any]
Objects = Mapping[Name, Object]

FIRST_RETRY, LAST_RETRY = 0.5, 60.0
"""Seconds before a failed write is tried again; doubles from the first to the last."""


class Dependents(Generic[V]):
    """Objects of one kind, each owned by an object of another one."""

    def __init__(
        self,
        client: kube.Client,
        resource: Resource,
        owner: Resource,
        seen: Callable[[Resource], Objects],
        make: Callable[[Key, V], Mapping[Name, Object | None]],
    ) -> None:
        """``seen``: the objects of a kind as last seen. ``make(owner, value)``: what the owner is
        to have, by namespace and name, with a ``status`` if it is ours to say; None for an object
        that stays as it is.
        """
        self._client = client
        self._resource, self._owner = resource, owner
        self._seen = seen
        self._make = make
        self._values: Table[Key, V] | None = None
        """None before the first pass: nothing is removed that may be wanted."""
        self._wanted: dict[Name, tuple[Key, Object | None]] = {}
        self._due: dict[Name, None] = {}
        self._failures: dict[Name, int] = {}
        self._woken = asyncio.Event()

    def set_desired(self, values: Table[Key, V]) -> None:
        """Say what there is to be from now on, by owner."""
        before: Table[Key, V] = Table() if self._values is None else self._values
        self._values = values
        for owner, old, new in before.diff(values):
            made = {} if new is None else self._make(owner, new)
            for name in {} if old is None else self._make(owner, old):
                if name not in made and self._wanted.get(name, (owner,))[0] == owner:
                    self._wanted.pop(name, None)
                    self.enqueue(name)
            for name, wanted in made.items():
                self._wanted[name] = (owner, wanted)
                self.enqueue(name)
        self._woken.set()

    def enqueue(self, name: Name) -> None:
        """Look again at an object: somebody may have changed it, or its owner."""
        self._due[name] = None
        self._woken.set()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._due and self._values is not None:
                name = next(iter(self._due))
                del self._due[name]
                await self._reconcile(name)

    async def _reconcile(self, name: Name) -> None:
        try:
            if name in self._wanted:
                await self._apply(name, *self._wanted[name])
            else:
                await self._remove(name)
        except (kube.ApiError, apply.NotOwnedError) as error:
            failures = self._failures[name] = self._failures.get(name, 0) + 1
            delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 16))
            log.warning("not made", kind=self._resource.kind, name=_text(name), error=str(error))
            asyncio.get_running_loop().call_later(delay, self.enqueue, name)
        else:
            self._failures.pop(name, None)

    async def _apply(self, name: Name, owner: Key, wanted: Object | None) -> None:
        found = self._seen(self._owner).get((owner[1], owner[2]))
        if found is None or wanted is None:
            return
        reference = {
            "apiVersion": self._owner.api_version,
            "kind": self._owner.kind,
            "name": owner[2],
            "uid": found["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": False,
        }
        metadata = {**wanted["metadata"], "ownerReferences": [reference]}
        stated = {key: value for key, value in wanted.items() if key != "status"}
        stated["metadata"] = metadata
        known = self._seen(self._resource).get(name)
        outcome = await apply.create_or_update(self._client, self._resource, stated, known=known)
        log.debug("kept", outcome=str(outcome))
        # What was just written comes back by the watch, and then it is looked at again.
        if outcome.action == "unchanged" and known is not None and "status" in wanted:
            await self._notify(known, wanted["status"])

    async def _notify(self, known: Object, status: Object) -> None:
        if not apply.covers(known.get("status"), status):
            await self._client.update_status(self._resource, {**known, "status": status})

    async def _remove(self, name: Name) -> None:
        known = self._seen(self._resource).get(name)
        if known is None:
            return
        owner = apply.controller_of(known)
        label = (known["metadata"].get("labels") or {}).get(apply.MANAGED_BY)
        if owner is None or owner["kind"] != self._owner.kind or label != apply.MANAGER:
            return
        try:
            await self._client.delete(
                self._resource, name[1], name[0], uid=known["metadata"]["uid"]
            )
        except kube.NotFound:
            return
        log.debug("removed", kind=self._resource.kind, name=_text(name))


def _text(name: Name) -> str:
    return "/".join(each for each in name if each)
