"""Names and values of tenants in the objects of a data plane, at a real kube-apiserver.

Who: the author of a Gateway, who chooses its name, labels, annotations and addresses; and another
user of the namespace, who creates objects with the names first. What must hold: every name yields
valid objects of its own, which a second pass leaves unchanged; selectors select no Pods of another
Gateway; an object that Gatehouse does not own is neither adopted nor overwritten, and the others
are written nevertheless.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.kube_apiserver import KubeApiserver
from gatehouse.apis import resources
from gatehouse.apis.data_plane_workload import (
    Autoscaling,
    DaemonSetOptions,
    DeploymentOptions,
    DisruptionBudget,
    NetworkOptions,
    Workload,
)
from gatehouse.apis.resources import GATEWAYS
from gatehouse.controller.provisioner import names
from gatehouse.controller.provisioner.manifests import ProvisionerSettings, ProvisioningPlan
from gatehouse.controller.provisioner.reconcile import ReconcileError, reconcile_objects
from gatehouse.kube import client as kube

LABEL = "l" * 63
SETTINGS = ProvisionerSettings(
    {"nginx": "image", "envoy": "image"}, "host", 1, "name", "PEM", "agents"
)
FULL = Workload(
    deployment=DeploymentOptions(
        autoscaling=Autoscaling(enable=True, max_replicas=3),
        pod_disruption_budget=DisruptionBudget(min_available=1),
    ),
    network_policy=NetworkOptions(enable=True),
)
GATEWAY_NAMES = (
    "a", "9", "a.b", "a-b", "x" * 63, "x" * 64, f"{'x' * 63}.y", "0" * 253, "gatehouse", "default",
    "a-agent", f"{'y' * 62}.{'z' * 60}", f"{'y' * 62}.{'z' * 61}",
)  # fmt: skip
CLASSES = ("c", "b-c", "gatehouse-nginx", "k" * 253)


def gateway(name: str, class_name: str, **infrastructure: Any) -> dict[str, Any]:
    return {
        "apiVersion": GATEWAYS.api_version,
        "kind": GATEWAYS.kind,
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{hash(name)}"},
        "spec": {"gatewayClassName": class_name, "infrastructure": infrastructure},
    }


def test_names_of_data_planes_are_valid_and_differ() -> None:
    by_name: dict[str, set[str]] = {}
    for name, class_name in itertools.product(GATEWAY_NAMES, CLASSES):
        result = names.resource_name(name, class_name)
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", result)
        by_name.setdefault(result, set()).add(f"{name}-{class_name}")
    # Only those collide whose names are the same text, as Gateway API defines them.
    assert all(len(texts) == 1 for texts in by_name.values())


def test_selectors_select_no_pods_of_another_gateway() -> None:
    planes = list(itertools.product(GATEWAY_NAMES, CLASSES))
    for one, two in itertools.permutations(planes, 2):
        selected = names.selector(*one).items() <= names.owned_labels(*two).items()
        assert not selected, (one, two)


@pytest.fixture
async def client(kube_apiserver: KubeApiserver) -> AsyncIterator[kube.Client]:
    async with kube.Client.from_kubeconfig(kube_apiserver.kubeconfig) as connected:
        yield connected


@pytest.mark.long
@pytest.mark.process
@pytest.mark.peers
@pytest.mark.parametrize("name", GATEWAY_NAMES)
async def test_objects_are_valid_and_stable_at_a_kube_apiserver(
    client: kube.Client, name: str
) -> None:
    infrastructure = {
        "labels": {LABEL: "", "team": LABEL},
        "annotations": {"note": "\n\u2028" * 2000, LABEL: '{"a": [1]}'},
    }
    one = gateway(name, "n" * 253, **infrastructure)
    ports = ((1, "TCP"), (53, "TCP"), (53, "UDP"), (65535, "UDP"))
    plan = ProvisioningPlan(ports, proxy="envoy" if len(name) % 2 else "nginx", workload=FULL)
    first = await reconcile_objects(client, one, SETTINGS, plan)
    assert [result.action for result in first] == ["created"] * 7
    second = await reconcile_objects(client, one, SETTINGS, plan)
    assert [result.action for result in second] == ["unchanged"] * 7


@pytest.mark.long
@pytest.mark.process
@pytest.mark.peers
async def test_daemon_set_is_valid_at_a_kube_apiserver(client: kube.Client) -> None:
    plan = ProvisioningPlan(((80, "TCP"),), workload=Workload(daemon_set=DaemonSetOptions()))
    one = gateway("on-each-node", "c")
    await reconcile_objects(client, one, SETTINGS, plan)
    results = await reconcile_objects(client, one, SETTINGS, plan)
    assert {result.action for result in results} == {"unchanged"}


@pytest.mark.long
@pytest.mark.process
@pytest.mark.peers
@pytest.mark.parametrize("owner", ["no owner", "other gateway", "lies"])
async def test_object_of_another_user_is_neither_adopted_nor_overwritten(
    client: kube.Client, owner: str
) -> None:
    name = f"taken-{owner.replace(' ', '-')}"
    metadata: dict[str, Any] = {"name": f"{name}-c", "namespace": "default"}
    if owner != "no owner":
        metadata["labels"] = {names.MANAGED_BY_LABEL: names.FIELD_MANAGER}
        kind = {"other gateway": "Gateway", "lies": "Deployment"}[owner]
        reference = {"apiVersion": GATEWAYS.api_version, "kind": kind, "name": "other", "uid": "u"}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    before = {}
    for resource, body in (
        (resources.SERVICES, {"spec": {"ports": [{"port": 1}], "selector": {"app": "user"}}}),
        (resources.SERVICE_ACCOUNTS, {}),
    ):
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        before[resource] = await client.create(resource, {**obj, "metadata": metadata})
    with pytest.raises(ReconcileError, match=f"Service default/{name}-c"):
        await reconcile_objects(
            client, gateway(name, "c"), SETTINGS, ProvisioningPlan(((80, "TCP"),))
        )
    for resource, obj in before.items():
        assert await client.get(resource, f"{name}-c", "default") == obj
    deployment = await client.get(resources.DEPLOYMENTS, f"{name}-c", "default")
    assert deployment["metadata"]["ownerReferences"][0]["name"] == name
