"""Making, mending and removing what Gateways need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gatehouse.apis.resources import DEPLOYMENTS, SERVICE_ACCOUNTS, SERVICES
from gatehouse.controller.provisioner.manifests import ProvisionerSettings, ProvisioningPlan
from gatehouse.controller.provisioner.pod import ProxyKind
from gatehouse.controller.provisioner.reconcile import (
    ReconcileError,
    gateway_of,
    prune_orphans,
    reconcile_objects,
)
from gatehouse.kube.client import (
    ApiError,
    Client,
    Conflict,
    Forbidden,
    ListResult,
    NamespaceTerminating,
    NotFound,
)
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken
from kube_base.types.resource import Resource

IMAGES: dict[ProxyKind, str] = {"nginx": "image", "envoy": "other"}
SETTINGS = ProvisionerSettings(IMAGES, "host", 1, "name", "PEM", "audience")

Key = tuple[str, str, str]


PLAN = ProvisioningPlan(((80, "TCP"),))


def gateway(name: str, uid: str = "u", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": uid, **metadata},
        "spec": {
            "gatewayClassName": "c",
            "listeners": [{"name": "a", "port": 80, "protocol": "HTTP"}],
        },
    }


class Store(Client):
    """An API server in memory that keeps what it is given and may forbid kinds."""

    def __init__(self) -> None:
        super().__init__(Configuration("http://nowhere", StaticToken()))
        self.objects: dict[Key, dict[str, Any]] = {}
        self.forbidden = ""
        self.refusal: ApiError = Forbidden(403, "Forbidden", "not allowed")
        self.selector = ""

    def _put(self, resource: Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
        if resource.kind == self.forbidden:
            raise self.refusal
        key = (resource.kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        uid = f"uid-of-{key[0]}-{key[2]}"
        self.objects[key] = {**obj, "metadata": {"uid": uid, **obj["metadata"]}}
        return self.objects[key]

    def kinds(self) -> list[str]:
        return sorted(kind for kind, _, _ in self.objects)

    async def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        try:
            return self.objects[(resource.kind, namespace, name)]
        except KeyError:
            raise NotFound(404, "NotFound", name) from None

    async def create(self, resource: Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
        return self._put(resource, obj)

    async def update(self, resource: Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
        return self._put(resource, obj)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        **_: Any,
    ) -> ListResult:
        self.selector = label_selector
        return ListResult([o for k, o in self.objects.items() if k[0] == resource.kind], "1")

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str = "", **_: Any
    ) -> None:
        if self.objects[(resource.kind, namespace, name)]["metadata"]["uid"] != uid:
            raise Conflict(409, "Conflict", "uid")
        del self.objects[(resource.kind, namespace, name)]


ALL = ["ConfigMap", "Deployment", "Service", "ServiceAccount"]


async def test_reconcile_creates_all_objects_once() -> None:
    store = Store()
    first = await reconcile_objects(store, gateway("g"), SETTINGS, PLAN)
    assert [outcome.action for outcome in first] == ["created"] * 4
    assert store.kinds() == ALL
    second = await reconcile_objects(store, gateway("g"), SETTINGS, PLAN)
    assert [outcome.action for outcome in second] == ["unchanged"] * 4


async def test_nothing_fails_in_a_namespace_that_is_being_deleted() -> None:
    """Kubernetes deletes objects of the Gateway before the Gateway."""
    store = Store()
    await reconcile_objects(store, gateway("g"), SETTINGS, PLAN)
    del store.objects[("ServiceAccount", "ns", "g-c")]
    store.forbidden = "ServiceAccount"
    store.refusal = NamespaceTerminating(403, "Forbidden", "it is being terminated")
    assert not await reconcile_objects(store, gateway("g"), SETTINGS, PLAN)
    assert store.kinds() == ["ConfigMap", "Deployment", "Service"]


async def test_reconcile_repairs_changed_objects() -> None:
    store = Store()
    await reconcile_objects(store, gateway("g"), SETTINGS, PLAN)
    store.objects[("Deployment", "ns", "g-c")]["spec"]["replicas"] = 7
    outcomes = await reconcile_objects(store, gateway("g"), SETTINGS, PLAN)
    assert {o.kind: o.action for o in outcomes}["Deployment"] == "updated"
    assert store.objects[("Deployment", "ns", "g-c")]["spec"]["replicas"] == 1


async def test_reconcile_does_nothing_when_gateway_is_being_deleted() -> None:
    store = Store()
    leaving = gateway("g", deletionTimestamp="2026-01-01T00:00:00Z")
    assert await reconcile_objects(store, leaving, SETTINGS, PLAN) == ()
    assert store.kinds() == []


async def test_reconcile_error_names_all_failures_and_rest_is_created() -> None:
    store = Store()
    store.forbidden = "ConfigMap"
    await store.create(SERVICES, {"metadata": {"name": "g-c", "namespace": "ns"}})
    with pytest.raises(ReconcileError) as caught:
        await reconcile_objects(store, gateway("g"), SETTINGS, PLAN)
    assert "ConfigMap ns/g-c-agent: not allowed" in str(caught.value)
    assert "Service ns/g-c exists and is not managed by Gatehouse" in str(caught.value)
    assert "Deployment" in store.kinds()


async def test_reconcile_raises_when_object_belongs_to_another_gateway() -> None:
    store = Store()
    await reconcile_objects(store, gateway("a-b"), SETTINGS, PLAN)
    other = gateway("a")
    other["spec"]["gatewayClassName"] = "b-c"
    with pytest.raises(ReconcileError, match="is owned by Gateway 'a-b'"):
        await reconcile_objects(store, other, SETTINGS, PLAN)


async def test_reconcile_deletes_objects_of_former_class() -> None:
    store = Store()
    moving = gateway("g")
    await reconcile_objects(store, gateway("other"), SETTINGS, PLAN)
    await reconcile_objects(store, moving, SETTINGS, PLAN)
    moving["spec"]["gatewayClassName"] = "d"
    outcomes = await reconcile_objects(store, moving, SETTINGS, PLAN)
    assert [outcome.action for outcome in outcomes] == ["created"] * 4 + ["deleted"] * 4
    assert {name for _, _, name in store.objects} == {
        "g-d",
        "g-d-agent",
        "other-c",
        "other-c-agent",
    }


async def test_prune_deletes_objects_of_deleted_gateways() -> None:
    store = Store()
    await reconcile_objects(store, gateway("stays"), SETTINGS, PLAN)
    await reconcile_objects(store, gateway("gone"), SETTINGS, PLAN)
    outcomes = await prune_orphans(store, {("ns", "stays"), ("elsewhere", "gone")}.__contains__)
    assert [outcome.kind for outcome in outcomes] == [
        "Deployment",
        "Service",
        "ConfigMap",
        "ServiceAccount",
    ]
    assert {name for _, _, name in store.objects} == {"stays-c", "stays-c-agent"}
    assert "managed-by=gatehouse" in store.selector


async def test_prune_keeps_objects_without_matching_owner() -> None:
    store = Store()
    await reconcile_objects(store, gateway("gone"), SETTINGS, PLAN)
    del store.objects[("Deployment", "ns", "gone-c")]["metadata"]["ownerReferences"]
    await prune_orphans(store, lambda _: False)
    assert store.kinds() == ["Deployment"]


async def test_prune_keeps_objects_recreated_since_listing() -> None:
    store = Store()
    await reconcile_objects(store, gateway("gone"), SETTINGS, PLAN)
    judged = await store.list(DEPLOYMENTS)
    stale = ListResult([{**judged.items[0]}], "1")
    stale.items[0]["metadata"] = {**stale.items[0]["metadata"], "uid": "before"}

    class Stale(Store):
        async def list(self, resource: Resource, *_: Any, **__: Any) -> ListResult:
            return stale if resource is DEPLOYMENTS else ListResult([], "1")

    late = Stale()
    late.objects = store.objects
    assert await prune_orphans(late, lambda _: False) == ()
    assert "Deployment" in store.kinds()


async def service_accounts() -> dict[tuple[str, str], dict[str, Any]]:
    store = Store()
    await reconcile_objects(store, gateway("g"), SETTINGS, PLAN)
    await reconcile_objects(store, gateway("l" * 100), SETTINGS, PLAN)
    kind = SERVICE_ACCOUNTS.kind
    return {(key[1], key[2]): obj for key, obj in store.objects.items() if key[0] == kind}


async def test_gateway_of_service_account_with_long_name() -> None:
    accounts = await service_accounts()
    names_of_gateways = {gateway_of(namespace, name, accounts) for namespace, name in accounts}
    assert names_of_gateways == {"ns/g", "ns/" + "l" * 100}


async def test_gateway_of_unknown_or_unowned_service_account_is_none() -> None:
    accounts = await service_accounts()
    ours = accounts[("ns", "g-c")]
    metadata = ours["metadata"]
    [owner] = metadata["ownerReferences"]
    forged: list[dict[str, Any]] = [
        {**metadata, "ownerReferences": []},
        {**metadata, "ownerReferences": [{**owner, "controller": False}]},
        {**metadata, "ownerReferences": [{**owner, "name": "other"}]},
        {**metadata, "ownerReferences": [{**owner, "kind": "Deployment"}]},
        {**metadata, "ownerReferences": [{**owner, "apiVersion": "example.com/v1"}]},
        {**metadata, "labels": {}},
        {**metadata, "labels": {**metadata["labels"], "app.kubernetes.io/managed-by": "x"}},
    ]
    assert gateway_of("ns", "unknown", accounts) is None
    for forged_metadata in forged:
        assert gateway_of("ns", "g-c", {("ns", "g-c"): {"metadata": forged_metadata}}) is None
