"""CustomResourceDefinitions: registration of their resources, and cleanup after deletion."""

from __future__ import annotations

from kube_api_server import fields
from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.objects import crds, timestamps
from kube_api_server.objects.admission import Admission
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.verbs import mutable_copy
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.storage.entries import StoreEvent
from kube_api_server.storage.store import ObjectStore
from kube_api_server.structural import schema_node
from kube_base.types.objects import Object, copy_value

_PREFIX = f"/{crds.GROUP}/{crds.PLURAL}/"
_MANAGER = "kube-apiserver"
"""Name of the server as the owner of statuses, as in Kubernetes."""


def serve_crds(store: ObjectStore, registry: Registry, admission: Admission) -> None:
    """Update the registry when CRDs change, and set their status when they are written."""

    def changed(event: StoreEvent) -> None:
        before = event.before.value if event.before else None
        now = event.now.value if event.now else None
        spec = (now or before or {})["spec"]
        old_spec = before["spec"] if before else None
        if now is not None and spec == old_spec and crds.is_established(before or {}):
            return
        # The registry keeps references, and the store's own values must not be kept alive by them.
        served = []
        if event.now is not None and crds.is_established(event.now.value):
            served = crds.served_by(mutable_copy(event.now))
        old = [
            candidate
            for candidate in registry.all()
            if (candidate.resource.group, candidate.resource.plural)
            == (spec["group"], spec["names"]["plural"])
        ]
        registry.replace(spec["group"], spec["names"]["plural"], served)
        for resource in old:
            schema_node.forget(resource.schema)

    def finish(call: WriteRequest, obj: Object, _: Object | None) -> None:
        before = {"conditions": [], **copy_value(obj.get("status") or {})}
        crds.complete_status(obj, registry)
        _own_status(call, obj, before)

    store.listen(_PREFIX, changed)
    admission.finishing.setdefault(crds.PLURAL, []).append(finish)
    for key, entry in store.list(_PREFIX):
        changed(StoreEvent(entry.revision, key, None, entry))


def _own_status(call: WriteRequest, obj: Object, before: Object) -> None:
    """Record the server as the owner of the fields of the status that it has changed.

    The stored versions have no owner, as in Kubernetes.
    """
    metadata = obj["metadata"]
    before["storedVersions"] = obj["status"]["storedVersions"]
    managed_fields = fields.update(
        {"metadata": {}, "status": before},
        {"metadata": {"managedFields": metadata.get("managedFields")}, "status": obj["status"]},
        call.served.schema,
        manager=_MANAGER,
        api_version=call.served.resource.api_version,
        now=timestamps.now(),
        subresource="status",
    )
    if managed_fields:
        metadata["managedFields"] = managed_fields


class Cleanup:
    """Deletes the objects of a deleted CRD, then removes its finalizer."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.queue = ReconcileQueue(
            "definitions", self._work, lambda: [key for key, _ in context.store.list(_PREFIX)]
        )
        context.store.listen(_PREFIX, self._changed)

    def _changed(self, event: StoreEvent) -> None:
        if event.now is not None and event.now.value["metadata"].get("deletionTimestamp"):
            self.queue.add(event.key)

    async def _work(self, key: str) -> None:
        context = self._context
        entry = context.store.get(key)
        if entry is None or not entry.value["metadata"].get("deletionTimestamp"):
            return
        spec = entry.value["spec"]
        served = context.registry.stored(spec["group"], spec["names"]["plural"])
        left = False
        if served is not None:
            for object_key, _ in list(context.store.list(served.prefix)):
                await context.delete(object_key)
                left |= context.store.latest(object_key) is not None
        if left:
            self.queue.add_after(key, 1.0)
            return
        call = context.call_for(key)
        if call is not None:
            await context.deletion.remove_finalizer(call, crds.FINALIZER)
