"""Workloads that the one-machine node runs as data planes."""

from __future__ import annotations

from typing import Any

import pytest

from gatehouse.controller.provisioner import names
from gatehouse.standalone.node import pods, trust

GATEWAY = {
    "metadata": {"name": "web", "namespace": "ns", "uid": "u1"},
    "spec": {"gatewayClassName": "edge"},
}
GATEWAYS = {("ns", "web"): GATEWAY}
OWNER = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "Gateway",
    "name": "web",
    "uid": "u1",
    "controller": True,
}


def classes(controller: str = "gatehouse.dev/nginx") -> dict[tuple[str, str], Any]:
    return {("", "edge"): {"spec": {"controllerName": controller}}}


def workload(namespace: str = "ns", **owner: Any) -> dict[str, Any]:
    labels = names.labels("web", "edge")
    references = [{**OWNER, **owner}]
    metadata = {"name": "web-edge", "namespace": namespace, "labels": labels}
    return {"metadata": {**metadata, "ownerReferences": references}}


def refusal(obj: dict[str, Any], *, controller: str = "gatehouse.dev/nginx") -> str:
    return trust.refusal(obj, GATEWAYS, classes(controller), lambda: False)


@pytest.mark.parametrize("controller", ["gatehouse.dev/nginx", "gatehouse.dev/envoy"])
def test_workload_of_a_served_gateway_is_run(controller: str) -> None:
    assert refusal(workload(), controller=controller) == ""


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (workload(uid="u2"), "Gateway ns/web (u2) not found"),
        (workload("other"), "Gateway other/web (u1) not found"),
        (workload(controller=False), "not controlled by a Gateway"),
        (workload(kind="Deployment"), "not controlled by a Gateway"),
        (workload(apiVersion="example.com/v1"), "not controlled by a Gateway"),
        (workload(name="web2"), "not controlled by a Gateway"),
    ],
)
def test_workload_without_its_gateway_is_not_run(obj: dict[str, Any], said: str) -> None:
    found = refusal(obj)
    assert found.startswith("metadata.ownerReferences: ")
    assert said in found


def test_workload_of_another_controllers_gateway_is_not_run() -> None:
    found = refusal(workload(), controller="example.com/other")
    assert found == "GatewayClass edge: spec.controllerName: 'example.com/other' is another's"


def test_workload_without_its_class_keeps_running_only_if_running() -> None:
    assert trust.refusal(workload(), GATEWAYS, {}, lambda: True) == ""
    found = trust.refusal(workload(), GATEWAYS, {}, lambda: False)
    assert found == "GatewayClass edge not found"


def test_stored_pod_provides_only_identity_and_status() -> None:
    own: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}, "annotations": {}},
        "spec": {"containers": [{"command": ["gatehouse", "agent"]}]},
    }
    stored: dict[str, Any] = {
        "metadata": {**own["metadata"], "uid": "u", "labels": {"a": "forged"}},
        "spec": {"containers": [{"command": ["/bin/sh"]}], "serviceAccountName": "other"},
        "status": {"phase": "Running"},
    }
    found = pods.with_identity(own, stored)
    assert found["metadata"] == {**own["metadata"], "uid": "u"}
    assert found["spec"] == own["spec"]
    assert found["status"] == stored["status"]
