"""Enforcement of ResourceQuotas for numbers of objects, and their status.

https://kubernetes.io/docs/concepts/policy/resource-quotas

Every server enforces them in admission, one of them writes the status. A new object reserves its
place from the check until it is visible, so that concurrent requests of one server cannot exceed a
quota. Servers that share a storage do not see each other's reservations: together they can exceed
it by what they write at the same moment.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gatehouse.apis.objects import Object
from gatehouse.apiserver import errors
from gatehouse.apiserver.builtin.resource_quotas import CORE, COUNT, hard_limits
from gatehouse.apiserver.controllers.context import ControllerContext
from gatehouse.apiserver.controllers.reconcile_queue import ReconcileQueue
from gatehouse.apiserver.objects.admission import Admission
from gatehouse.apiserver.objects.write_request import WriteRequest
from gatehouse.apiserver.storage.entries import StoreEvent
from gatehouse.apiserver.storage.store import ObjectStore

_PREFIX = "/core/resourcequotas/"
_MANAGER = "resourcequota-controller"
_DEBOUNCE_SECONDS = 0.2
"""Minimum time in seconds between two writes of a status."""

_BY_VALUE = ("/core/pods/", "/core/services/")
"""Prefixes of resources whose objects claim different amounts, which updates can change."""


def claims(key: str, obj: Mapping[str, Any]) -> Counter[str]:
    """Return what an object counts for, by name of the quota. ``key``: its store key."""
    _, group, plural, _ = key.split("/", 3)
    if group != "core":
        return Counter({f"count/{plural}.{group}": 1})
    result = Counter({f"count/{plural}": 1})
    if plural == "events":
        # The same objects are served in both groups.
        result["count/events.events.k8s.io"] = 1
    if plural == "pods":
        is_over = (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded")
        result["pods"] = int(not is_over)
    elif plural in CORE:
        result[plural] = 1
    if plural == "services":
        result += _service_claims(obj.get("spec") or {})
    return +result


def _service_claims(spec: Mapping[str, Any]) -> Counter[str]:
    is_balanced = spec.get("type") == "LoadBalancer"
    has_ports = spec.get("type") == "NodePort" or (
        is_balanced and spec.get("allocateLoadBalancerNodePorts") is not False
    )
    ports = len(spec.get("ports") or ()) if has_ports else 0
    return Counter({"services.loadbalancers": int(is_balanced), "services.nodeports": ports})


class _Reservation:
    """Addition of a write in progress to the use of its namespace."""

    def __init__(self, key: str, added: Counter[str]) -> None:
        self.key, self.added = key, added


class ResourceQuotas:
    """Use of all namespaces, and the check of every write."""

    def __init__(self, store: ObjectStore, admission: Admission) -> None:
        self._store = store
        self._valued: dict[str, Counter[str]] = {}
        """Claims of visible Pods and Services, by namespace."""
        self._reservations: dict[str, list[_Reservation]] = {}
        for prefix in _BY_VALUE:
            for key, entry in store.list(prefix):
                self._changed(StoreEvent(entry.revision, key, None, entry))
        store.listen_all(self._changed)
        admission.reserve = self.reserve

    def used(self, namespace: str, name: str) -> int:
        """Return the use of a namespace that readers see."""
        if (matched := COUNT.fullmatch(name)) is None:
            if name.startswith("services.") or name == "pods":
                return self._valued.get(namespace, Counter())[name]
            return self._store.count(f"/core/{name}/{namespace}/")
        plural, group = matched[1], matched[2] or "core"
        group = "core" if (plural, group) == ("events", "events.k8s.io") else group
        return self._store.count(f"/{group}/{plural}/{namespace}/")

    @contextlib.contextmanager
    def reserve(self, call: WriteRequest, obj: Object, old: Object | None) -> Iterator[None]:
        """Reserve the place of a write while it is in progress. Raises ApiError 403."""
        namespace = call.namespace
        quotas = f"{_PREFIX}{namespace}/"
        if not namespace or not self._store.count(quotas):
            yield
            return
        key = call.served.key(namespace, obj["metadata"]["name"])
        added = claims(key, obj) - (claims(key, old) if old is not None else Counter())
        for _, entry in self._store.list(quotas):
            self._check(call, entry.value, added, obj["metadata"]["name"])
        reservation = _Reservation(key, added)
        waiting = self._reservations.setdefault(namespace, [])
        if added and not call.options.dry_run:
            waiting.append(reservation)
        try:
            yield
        finally:
            if reservation in waiting:
                waiting.remove(reservation)
            if not waiting and self._reservations.get(namespace) is waiting:
                del self._reservations[namespace]

    def _check(self, call: WriteRequest, quota: Object, added: Counter[str], name: str) -> None:
        namespace, hard = call.namespace, hard_limits(quota)
        reserved = sum(
            (reservation.added for reservation in self._reservations.get(namespace, ())), Counter()
        )
        used = {item: self.used(namespace, item) + reserved[item] for item in added if item in hard}
        over = sorted(item for item in used if used[item] + added[item] > hard[item])
        if over:
            requested, in_use, limited = (
                ",".join(f"{item}={amounts[item]}" for item in over)
                for amounts in (added, used, hard)
            )
            resource = call.served.resource
            message = (
                f"exceeded quota: {quota['metadata']['name']}, requested: {requested}, "
                f"used: {in_use}, limited: {limited}"
            )
            raise errors.forbidden_error(resource.plural, resource.group, name, message)

    def _changed(self, event: StoreEvent) -> None:
        namespace = _namespace(event.key)
        if event.key.startswith(_BY_VALUE):
            total = self._valued.setdefault(namespace, Counter())
            for entry, sign in ((event.before, -1), (event.now, 1)):
                for name, amount in claims(event.key, entry.value).items() if entry else ():
                    total[name] += sign * amount
            if not any(total.values()):
                del self._valued[namespace]
        waiting = self._reservations.get(namespace, [])
        visible = next((entry for entry in waiting if entry.key == event.key), None)
        if visible is not None:
            waiting.remove(visible)


class QuotaStatusController:
    """Writes the use of each namespace to the status of its ResourceQuotas."""

    def __init__(self, context: ControllerContext, quotas: ResourceQuotas) -> None:
        self._context, self._quotas = context, quotas
        store = context.store
        self.queue = ReconcileQueue(
            "quotas",
            self._work,
            lambda: [key for key, _ in store.list(_PREFIX)],
            debounce=_DEBOUNCE_SECONDS,
        )
        store.listen_all(self._changed)

    def _changed(self, event: StoreEvent) -> None:
        if event.key.startswith(_PREFIX):
            self.queue.add(event.key)
        is_same_use = event.before and event.now and not event.key.startswith(_BY_VALUE)
        namespace = f"{_PREFIX}{_namespace(event.key)}/"
        if not is_same_use and self._context.store.count(namespace):
            for key, _ in self._context.store.list(namespace):
                self.queue.add(key)

    async def _work(self, key: str) -> None:
        entry = self._context.store.get(key)
        call = self._context.call_for(key, _MANAGER)
        if entry is None or call is None:
            return
        hard = (entry.value.get("spec") or {}).get("hard") or {}
        used = {name: str(self._quotas.used(call.namespace, name)) for name in hard}
        status = {"hard": hard, "used": used}
        if entry.value.get("status") == status:
            return
        call = self._context.call(call.served, entry.value, _MANAGER, "status")
        await self._context.verbs.change(call, lambda obj: {**obj, "status": status})


def _namespace(key: str) -> str:
    """Return the namespace of a store key; empty for an object of the cluster."""
    parts = key.split("/", 4)
    return parts[3] if len(parts) == len(("", "group", "plural", "namespace", "name")) else ""
