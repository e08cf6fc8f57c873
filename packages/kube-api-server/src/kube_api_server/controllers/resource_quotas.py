"""Enforcement of ResourceQuotas, and their status.

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
from decimal import Decimal
from typing import Any

from kube_api_server import errors
from kube_api_server.builtin.quota_claims import Amounts, QuotaClaim, missing_amounts
from kube_api_server.builtin.quota_scopes import QuotaScope, is_in_scope
from kube_api_server.builtin.resource_quotas import (
    COUNT,
    format_amount,
    hard_limits,
    is_sum,
)
from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.objects.admission import Admission
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.storage.entries import StoreEvent
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

_PREFIX = "/core/resourcequotas/"
_MANAGER = "resourcequota-controller"
_DEBOUNCE_SECONDS = 0.2
"""Minimum time in seconds between two writes of a status."""

_BY_VALUE = (
    "/core/pods/",
    "/core/services/",
    "/core/persistentvolumeclaims/",
    "/resource.k8s.io/resourceclaims/",
)
"""Prefixes of resources whose objects claim different amounts, which updates can change."""

_SCOPED = ("persistentvolumeclaims", "pods")
"""Names of numbers of objects that scopes select."""


class _Reservation:
    """Change of the use of a namespace by a write in progress."""

    def __init__(self, key: str, new: QuotaClaim, old: QuotaClaim) -> None:
        self.key, self._new, self._old = key, new, old

    def added(self, quota: Mapping[str, Any]) -> Amounts:
        """Return what the write adds to the use of a quota."""
        return self._new.within(quota) - self._old.within(quota)


class ResourceQuotas:
    """Use of all namespaces, and the check of every write."""

    def __init__(self, store: ObjectStore, admission: Admission) -> None:
        self._store = store
        self._valued: dict[str, dict[QuotaScope, Amounts]] = {}
        """Claims of visible objects that claim by value, by namespace and scope."""
        self._reservations: dict[str, list[_Reservation]] = {}
        for prefix in _BY_VALUE:
            for key, entry in store.list(prefix):
                self._changed(StoreEvent(entry.revision, key, None, entry))
        store.listen_all(self._changed)
        admission.reserve = self.reserve

    def used(self, namespace: str, quota: Mapping[str, Any], name: str) -> Decimal:
        """Return the use of a quota that readers see."""
        if (matched := COUNT.fullmatch(name)) is None:
            if is_sum(name) or name.startswith("services.") or name in _SCOPED:
                return self._sum(namespace, quota, name)
            return Decimal(self._store.count(f"/core/{name}/{namespace}/"))
        plural, group = matched[1], matched[2] or "core"
        group = "core" if (plural, group) == ("events", "events.k8s.io") else group
        return Decimal(self._store.count(f"/{group}/{plural}/{namespace}/"))

    def _sum(self, namespace: str, quota: Mapping[str, Any], name: str) -> Decimal:
        by_scope = self._valued.get(namespace, {})
        amounts = (by_scope[scope][name] for scope in by_scope if is_in_scope(quota, scope))
        return sum(map(Decimal, amounts), Decimal(0))

    @contextlib.contextmanager
    def reserve(self, call: WriteRequest, obj: Object, old: Object | None) -> Iterator[None]:
        """Reserve the place of a write while it is in progress. Raises ApiError 403."""
        namespace = call.namespace
        quotas = f"{_PREFIX}{namespace}/"
        if not namespace or not self._store.count(quotas):
            yield
            return
        key = call.served.key(namespace, obj["metadata"]["name"])
        reservation = _Reservation(key, QuotaClaim(key, obj), QuotaClaim(key, old))
        for _, entry in self._store.list(quotas):
            self._check(call, entry.value, reservation.added(entry.value), obj)
        waiting = self._reservations.setdefault(namespace, [])
        if not call.options.dry_run:
            waiting.append(reservation)
        try:
            yield
        finally:
            if reservation in waiting:
                waiting.remove(reservation)
            if not waiting and self._reservations.get(namespace) is waiting:
                del self._reservations[namespace]

    def _check(self, call: WriteRequest, quota: Object, added: Amounts, obj: Object) -> None:
        namespace, hard = call.namespace, hard_limits(quota)
        resource, name = call.served.resource, obj["metadata"]["name"]
        if added["pods"] and (missing := missing_amounts(hard, obj)):
            message = f"failed quota: {quota['metadata']['name']}: must specify {missing}"
            raise errors.forbidden_error(resource.plural, resource.group, name, message)
        reserved: Amounts = Counter()
        for reservation in self._reservations.get(namespace, ()):
            reserved += reservation.added(quota)
        used = {
            item: self.used(namespace, quota, item) + reserved[item]
            for item in added
            if item in hard
        }
        over = sorted(item for item in used if used[item] + added[item] > hard[item])
        if over:
            requested, in_use, limited = (
                ",".join(f"{item}={format_amount(item, Decimal(amounts[item]))}" for item in over)
                for amounts in (added, used, hard)
            )
            message = (
                f"exceeded quota: {quota['metadata']['name']}, requested: {requested}, "
                f"used: {in_use}, limited: {limited}"
            )
            raise errors.forbidden_error(resource.plural, resource.group, name, message)

    def _changed(self, event: StoreEvent) -> None:
        namespace = _namespace(event.key)
        if event.key.startswith(_BY_VALUE):
            self._count(namespace, event)
        waiting = self._reservations.get(namespace, [])
        visible = next((entry for entry in waiting if entry.key == event.key), None)
        if visible is not None:
            waiting.remove(visible)

    def _count(self, namespace: str, event: StoreEvent) -> None:
        by_scope = self._valued.setdefault(namespace, {})
        for entry, sign in ((event.before, -1), (event.now, 1)):
            if entry is None:
                continue
            claim = QuotaClaim(event.key, entry.value)
            total = by_scope.setdefault(claim.scope, Counter())
            for name, amount in claim.amounts.items():
                total[name] += sign * amount
            if not any(total.values()):
                del by_scope[claim.scope]
        if not by_scope:
            del self._valued[namespace]


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
        used = {
            name: format_amount(name, self._quotas.used(call.namespace, entry.value, name))
            for name in hard
        }
        status = {"hard": hard, "used": used}
        if entry.value.get("status") == status:
            return
        call = self._context.call(call.served, entry.value, _MANAGER, "status")
        await self._context.verbs.change(call, lambda obj: {**obj, "status": status})


def _namespace(key: str) -> str:
    """Return the namespace of a store key; empty for an object of the cluster."""
    parts = key.split("/", 4)
    return parts[3] if len(parts) == len(("", "group", "plural", "namespace", "name")) else ""
