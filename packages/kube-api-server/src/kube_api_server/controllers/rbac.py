"""RBAC: index of stored roles and bindings, escalation checks, aggregation, default objects."""

from __future__ import annotations

from collections.abc import Iterable

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.objects.admission import Admission
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.rbac import aggregation, defaults, escalation, signers
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.rules import RBAC_GROUP
from kube_api_server.rbac.signing_permissions import register_signing_checks
from kube_api_server.storage.entries import StoreEvent
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

_KINDS = {
    "roles": "Role",
    "clusterroles": "ClusterRole",
    "rolebindings": "RoleBinding",
    "clusterrolebindings": "ClusterRoleBinding",
}
_MANAGER = "kube-apiserver"


def register_authorizer(store: ObjectStore, authorizer: Authorizer, admission: Admission) -> None:
    """Update the authorizer with every change, and check the rights of writers beyond the verb."""

    def changed(event: StoreEvent) -> None:
        parts = event.key.split("/")
        namespace = parts[3] if len(parts) > 4 else ""
        now = event.now.value if event.now else None
        authorizer.set(_KINDS[parts[2]], namespace, parts[-1], now)

    def check(call: WriteRequest, obj: Object, old: Object | None) -> None:
        kind = call.served.resource.kind
        escalation.check_escalation(authorizer, call.user, kind, obj, old)

    def check_bundle(call: WriteRequest, obj: Object, old: Object | None) -> None:
        signers.check_attestation(authorizer, call.user, obj, old)

    admission.finishing.setdefault(signers.TRUST_BUNDLES, []).append(check_bundle)
    register_signing_checks(authorizer, admission)
    for plural in _KINDS:
        prefix = f"/{RBAC_GROUP}/{plural}/"
        store.listen(prefix, changed)
        admission.finishing.setdefault(plural, []).append(check)
        for key, entry in store.list(prefix):
            changed(StoreEvent(entry.revision, key, None, entry))


class Aggregation:
    """Writes the rules of aggregated ClusterRoles."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.queue = ReconcileQueue("roles", self._work, lambda: ["all"])
        context.store.listen(f"/{RBAC_GROUP}/clusterroles/", lambda _: self.queue.add("all"))

    async def _work(self, _: str) -> None:
        context = self._context
        served = context.kind(RBAC_GROUP, "clusterroles")
        for role in aggregation.changed_roles(context.all(RBAC_GROUP, "clusterroles")):
            rules = role["rules"]

            def change(obj: Object, rules: list[Object] = rules) -> Object:
                obj["rules"] = rules
                return obj

            await context.verbs.change(context.call(served, role, _MANAGER), change)


async def create_default_roles(context: ControllerContext, others: Iterable[Object]) -> None:
    """Create or update the default roles and bindings, and others."""
    plurals = {kind: plural for plural, kind in _KINDS.items()}
    for desired in (*defaults.objects(), *others):
        served = context.kind(RBAC_GROUP, plurals[desired["kind"]])
        metadata = desired["metadata"]
        entry = context.store.get(served.key(metadata.get("namespace", ""), metadata["name"]))
        after = defaults.reconcile_default(entry.value if entry else None, desired)
        if after is None:
            continue
        call = context.call(served, desired, _MANAGER)
        if entry is not None and entry.value.get("roleRef") != after.get("roleRef"):
            await context.deletion.delete(call, {})
            entry = None
        if entry is None:
            await context.verbs.create(call, _copy(after))
        else:
            await context.verbs.change(call, lambda _, after=after: _copy(after))  # type: ignore[misc]


def _copy(obj: Object) -> Object:
    return {**obj, "metadata": dict(obj["metadata"])}
