"""Garbage collection by owner references: background, foreground, orphan.

A graph of owners and dependents is updated with every change, so the cost of a deletion depends
only on its dependents.
"""

from __future__ import annotations

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.objects.deletion import FOREGROUND, ORPHAN
from kube_api_server.storage.entries import MismatchError, StoreEvent
from kube_base.types.objects import Object


class GarbageCollector:
    """Deletes dependents whose owners no longer exist."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.queue = ReconcileQueue("garbage", self._work, self._all)
        self._keys: dict[str, str] = {}
        """Store key by UID of every object."""
        self._dependents: dict[str, set[str]] = {}
        """Store keys of dependents by UID of their owner."""
        context.store.listen_all(self._changed)
        for prefix in context.store.resources():
            for key, entry in context.store.list(prefix):
                self._changed(StoreEvent(entry.revision, key, None, entry))

    def _all(self) -> set[str]:
        """Return the keys of all objects that have owners or are being deleted."""
        keys = set().union(*self._dependents.values())
        for key in self._keys.values():
            entry = self._context.store.get(key)
            if entry is not None and entry.value["metadata"].get("deletionTimestamp"):
                keys.add(key)
        return keys

    def _changed(self, event: StoreEvent) -> None:
        before = event.before.value["metadata"] if event.before else {}
        now = event.now.value["metadata"] if event.now else {}
        had, has = _owners(before), _owners(now)
        for uid in had - has:
            dependents = self._dependents.get(uid, set())
            dependents.discard(event.key)
            if not dependents:
                self._dependents.pop(uid, None)
            # A foreground deletion may have waited for this dependent.
            if uid in self._keys:
                self.queue.add(self._keys[uid])
        for uid in has - had:
            self._dependents.setdefault(uid, set()).add(event.key)
        if event.now is None:
            uid = before.get("uid", "")
            self._keys.pop(uid, None)
            for key in self._dependents.get(uid, ()):
                self.queue.add(key)
            return
        self._keys[now["uid"]] = event.key
        if now.get("deletionTimestamp") and {FOREGROUND, ORPHAN} & set(now.get("finalizers") or ()):
            self.queue.add(event.key)
        if has - had:
            self.queue.add(event.key)

    async def _work(self, key: str) -> None:
        entry = self._context.store.get(key)
        if entry is None:
            return
        metadata = entry.value["metadata"]
        finalizers = set(metadata.get("finalizers") or ())
        if metadata.get("deletionTimestamp"):
            if ORPHAN in finalizers:
                await self._orphan(key, metadata["uid"])
            elif FOREGROUND in finalizers:
                await self._foreground(key, metadata["uid"])
            return
        owners = metadata.get("ownerReferences") or ()
        if not owners:
            return
        missing = [owner for owner in owners if not self._alive(owner)]
        if len(missing) < len(owners):
            return
        call = self._context.call_for(key)
        if call is not None:
            options: Object = {"preconditions": {"uid": metadata["uid"]}}
            await self._context.delete(key, options)

    def _alive(self, owner: Object) -> bool:
        return owner.get("uid") in self._keys

    async def _foreground(self, key: str, uid: str) -> None:
        """Delete dependents, then remove the finalizer when no blocking dependent is left."""
        blocked, ancestors = False, self._ancestors(key)
        for dependent in sorted(self._dependents.get(uid, ())):
            entry = self._context.store.get(dependent)
            if entry is None:
                continue
            references = entry.value["metadata"].get("ownerReferences") or ()
            others = [o for o in references if o.get("uid") != uid and self._alive(o)]
            if others:
                await self._disown(dependent, uid)
                continue
            if not entry.value["metadata"].get("deletionTimestamp"):
                await self._context.delete(dependent, {"propagationPolicy": "Foreground"})
            blocking = any(o.get("uid") == uid and o.get("blockOwnerDeletion") for o in references)
            # Objects that own each other would wait for each other.
            blocking &= entry.value["metadata"]["uid"] not in ancestors
            blocked |= blocking and self._context.store.latest(dependent) is not None
        if not blocked:
            call = self._context.call_for(key)
            if call is not None:
                await self._context.deletion.remove_finalizer(call, FOREGROUND)

    def _ancestors(self, key: str) -> set[str]:
        """Return the UIDs of the owners of an object, of their owners, and so on."""
        result: set[str] = set()
        waiting = [key]
        while waiting:
            entry = self._context.store.get(waiting.pop())
            added = _owners(entry.value["metadata"]) - result if entry is not None else set()
            result |= added
            waiting += [self._keys[uid] for uid in added if uid in self._keys]
        return result

    async def _orphan(self, key: str, uid: str) -> None:
        for dependent in sorted(self._dependents.get(uid, ())):
            await self._disown(dependent, uid)
        call = self._context.call_for(key)
        if call is not None:
            await self._context.deletion.remove_finalizer(call, ORPHAN)

    async def _disown(self, key: str, uid: str) -> None:
        """Remove an owner from a dependent."""
        call = self._context.call_for(key)
        if call is None:
            return

        def change(obj: Object) -> Object:
            owners = obj["metadata"].get("ownerReferences") or []
            left = [owner for owner in owners if owner.get("uid") != uid]
            if left:
                obj["metadata"]["ownerReferences"] = left
            else:
                obj["metadata"].pop("ownerReferences", None)
            return obj

        try:
            await self._context.verbs.change(call, change)
        except MismatchError:
            self.queue.add(key)


def _owners(metadata: Object) -> set[str]:
    return {str(owner.get("uid")) for owner in metadata.get("ownerReferences") or ()}
