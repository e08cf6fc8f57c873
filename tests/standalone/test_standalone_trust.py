"""Workloads that the one-machine node runs as data planes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gatehouse.controller.provisioner import names
from gatehouse.standalone.node import pods, trust
from gatehouse.standalone.node.volumes import VolumeError, Volumes
from kube_base.types.resource import Resource

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
    labels = names.owned_labels("web", "edge")
    references = [{**OWNER, **owner}]
    metadata = {"name": "web-edge", "namespace": namespace, "labels": labels}
    return {"metadata": {**metadata, "ownerReferences": references}}


def refusal(obj: dict[str, Any], *, controller: str = "gatehouse.dev/nginx") -> str:
    return trust.workload_refusal(obj, GATEWAYS, classes(controller), lambda: False)


@pytest.mark.parametrize("controller", ["gatehouse.dev/nginx", "gatehouse.dev/envoy"])
def test_workload_of_a_served_gateway_is_run(controller: str) -> None:
    assert refusal(workload(), controller=controller) == ""


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (workload(uid="u2"), "Gateway ns/web (u2) not found"),
        (workload("other"), "Gateway other/web (u1) not found"),
        (workload(controller=False), "not controlled by a Gateway"),
        (workload(kind="Deployment"), "not controlled by a Gateway"),
        (workload(apiVersion="example.com/v1"), "not controlled by a Gateway"),
        (workload(name="web2"), "not controlled by a Gateway"),
    ],
)
def test_workload_without_its_gateway_is_not_run(obj: dict[str, Any], message: str) -> None:
    reason = refusal(obj)
    assert reason.startswith("metadata.ownerReferences: ")
    assert message in reason


def test_workload_of_another_controllers_gateway_is_not_run() -> None:
    reason = refusal(workload(), controller="example.com/other")
    assert reason == "GatewayClass edge: spec.controllerName: 'example.com/other' is another's"


def test_workload_without_its_class_keeps_running_only_if_running() -> None:
    assert trust.workload_refusal(workload(), GATEWAYS, {}, lambda: True) == ""
    reason = trust.workload_refusal(workload(), GATEWAYS, {}, lambda: False)
    assert reason == "GatewayClass edge not found"


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
    pod = pods.with_identity(own, stored)
    assert pod["metadata"] == {**own["metadata"], "uid": "u"}
    assert pod["spec"] == own["spec"]
    assert pod["status"] == stored["status"]


def source(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", **metadata}}


def test_data_plane_mounts_only_the_controllers_objects_under_its_own_names() -> None:
    pod = pods.pod_for(
        {
            "metadata": {"name": "web-edge", "namespace": "ns", "uid": "d1"},
            "spec": {
                "template": {"metadata": {"labels": names.owned_labels("web", "edge")}, "spec": {}}
            },
        },
        "local",
    )
    owned = {"labels": names.owned_labels("web", "edge"), "ownerReferences": [OWNER]}
    other = {"labels": names.owned_labels("b", "edge"), "ownerReferences": [{**OWNER, "name": "b"}]}
    assert trust.may_mount(pod, source("web-edge-agent", **owned))
    assert trust.may_mount(pod, source("mounted-by-the-class"))
    assert not trust.may_mount(pod, source("web-edge-agent"))
    assert not trust.may_mount(pod, source("web-edge-agent", labels=owned["labels"]))
    assert not trust.may_mount(pod, source("web-edge-agent", **other))


class OneConfigMap:
    """A client that returns one ConfigMap."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self._metadata = metadata

    async def get(self, _: Resource, name: str, *, namespace: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace, **self._metadata}
        return {"metadata": metadata, "data": {"ca.crt": "content"}}


async def test_volume_of_a_forged_config_map_is_not_written(tmp_path: Path) -> None:
    volume = {"name": "ca", "configMap": {"name": "web-edge-agent"}}
    labels = names.owned_labels("web", "edge")
    template = {"metadata": {"labels": labels}, "spec": {"volumes": [volume]}}
    metadata = {"name": "web-edge", "namespace": "ns", "uid": "d1"}
    pod = pods.pod_for({"metadata": metadata, "spec": {"template": template}}, "local")
    forged: Any = OneConfigMap({"labels": labels})
    message = "volume ca: ConfigMap ns/web-edge-agent must be written by the controller"
    with pytest.raises(VolumeError, match=message):
        await Volumes(forged, pod, tmp_path).fill()
    assert not (tmp_path / "ca" / "ca.crt").exists()
    genuine: Any = OneConfigMap({"labels": labels, "ownerReferences": [OWNER]})
    await Volumes(genuine, pod, tmp_path).fill()
    assert (tmp_path / "ca" / "ca.crt").read_text() == "content"
