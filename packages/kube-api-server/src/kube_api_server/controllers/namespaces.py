"""Controller of namespaces: default ServiceAccounts, and cleanup after deletion."""

from __future__ import annotations

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.objects import timestamps
from kube_api_server.storage.entries import StoreEvent
from kube_base.types.objects import Object

_MANAGER = "kube-apiserver"


class Namespaces:
    """Reconciles namespaces, and deletes the content of terminating ones."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.queue = ReconcileQueue("namespaces", self._work, self._all)
        self._terminating: set[str] = set()
        prefix = context.kind("", "namespaces").prefix
        context.store.listen(prefix, self._changed)
        context.store.listen(context.kind("", "serviceaccounts").prefix, self._account_changed)
        context.store.listen_all(self._anything_changed)
        for key, entry in context.store.list(prefix):
            self._changed(StoreEvent(entry.revision, key, None, entry))

    def _all(self) -> list[str]:
        prefix = self._context.kind("", "namespaces").prefix
        return [key.rpartition("/")[2] for key, _ in self._context.store.list(prefix)]

    def _changed(self, event: StoreEvent) -> None:
        name = event.key.rpartition("/")[2]
        if event.now is None:
            self._terminating.discard(name)
            return
        if event.now.value["metadata"].get("deletionTimestamp"):
            self._terminating.add(name)
        self.queue.add(name)

    def _account_changed(self, event: StoreEvent) -> None:
        if event.now is None:
            self.queue.add(event.key.split("/")[3])

    def _anything_changed(self, event: StoreEvent) -> None:
        if self._terminating and event.now is None:
            parts = event.key.split("/")
            if len(parts) > 4 and parts[3] in self._terminating:
                self.queue.add(parts[3])

    async def _work(self, name: str) -> None:
        context = self._context
        served = context.kind("", "namespaces")
        entry = context.store.get(served.key("", name))
        if entry is None:
            return
        if entry.value["metadata"].get("deletionTimestamp"):
            await self._empty(name)
            return
        accounts = context.kind("", "serviceaccounts")
        if context.store.latest(accounts.key(name, "default")) is None:
            account: Object = {"metadata": {"name": "default", "namespace": name}}
            await context.create("", "serviceaccounts", account, _MANAGER)

    async def _empty(self, name: str) -> None:
        """Delete all objects of a namespace, then remove its finalizer."""
        context = self._context
        left: list[str] = []
        for served in list(context.registry.persisted()):
            if not served.resource.namespaced:
                continue
            for key, _ in list(context.store.list(f"{served.prefix}{name}/")):
                await context.delete(key)
                if context.store.latest(key) is not None:
                    left.append(f"{served.resource.plural}/{key.rpartition('/')[2]}")
        call = context.call_for(context.kind("", "namespaces").key("", name))
        assert call is not None
        if not left:
            await context.deletion.remove_finalizer(call, "kubernetes")
            return
        await self._report_remaining(name, left)
        self.queue.add_after(name, 1.0)

    async def _report_remaining(self, name: str, left: list[str]) -> None:
        message = f"Some resources are remaining: {', '.join(sorted(left)[:10])}"
        condition = {
            "type": "NamespaceContentRemaining",
            "status": "True",
            "reason": "SomeResourcesRemain",
            "message": message,
            "lastTransitionTime": timestamps.now(),
        }
        served = self._context.kind("", "namespaces")
        call = self._context.call(served, {"metadata": {"name": name}}, _MANAGER, "status")

        def change(obj: Object) -> Object:
            status = obj.setdefault("status", {})
            others = [c for c in status.get("conditions") or () if c["type"] != condition["type"]]
            known = [c for c in status.get("conditions") or () if c not in others]
            if not known or known[0]["message"] != message:
                status["conditions"] = [*others, condition]
            return obj

        await self._context.verbs.change(call, change)
