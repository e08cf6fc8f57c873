"""Store of the owned objects of Gateways, which saves requests."""

from __future__ import annotations

from typing import Any

from gatehouse.apis.resources import CONFIG_MAPS, DEPLOYMENTS
from gatehouse.controller.provisioner import names
from gatehouse.controller.provisioner.owned_objects import OwnedObjects
from gatehouse.kube.store import Change, Changes


def obj(name: str, gateway: str = "g", version: str = "1", **labels: str) -> dict[str, Any]:
    owner = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "name": gateway,
        "uid": "u",
        "controller": True,
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "resourceVersion": version,
            "labels": {**names.owned_labels(gateway, "c"), **labels},
            "ownerReferences": [owner],
        }
    }


def changes(**objects: dict[str, Any] | None) -> Changes:
    return {("ns", name): Change(None, new) for name, new in objects.items()}


def test_owned_objects_are_indexed_by_gateway_until_deleted() -> None:
    owned = OwnedObjects()
    owned.on_changes(DEPLOYMENTS, changes(a=obj("a"), b=obj("b", "other")))
    owned.on_changes(CONFIG_MAPS, changes(a=obj("a")))
    assert owned.of(("ns", "g")).keys() == {("Deployment", "a"), ("ConfigMap", "a")}
    assert owned.of(("ns", "other")).keys() == {("Deployment", "b")}
    assert owned.of(("elsewhere", "g")) == {}
    owned.on_changes(DEPLOYMENTS, changes(a=None, unseen=None))
    assert owned.of(("ns", "g")).keys() == {("ConfigMap", "a")}


def test_owned_objects_forgets_object_when_manager_label_changes() -> None:
    owned = OwnedObjects()
    owned.on_changes(DEPLOYMENTS, changes(a=obj("a")))
    owned.on_changes(DEPLOYMENTS, changes(a=obj("a", **{names.MANAGED_BY_LABEL: "somebody"})))
    assert owned.of(("ns", "g")) == {}
    owned.on_changes(DEPLOYMENTS, changes(a=obj("a", "other", "3")))
    assert owned.of(("ns", "other"))[("Deployment", "a")]["metadata"]["resourceVersion"] == "3"
