"""Forged data planes of `gatehouse up`.

Who: a tenant with ClusterRole `edit` or `admin` in one namespace. Through what: Deployments,
DaemonSets, ReplicaSets, Pods, ConfigMaps, Secrets, Services and parameters of that namespace, with
every kind of write and any field manager. What must hold: the node, often root, runs no command of
the tenant and trusts no certificate of the tenant; Gateways of others keep their addresses.
"""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from fakes.installation import Installation, address, apply, get, hello, holds
from fakes.patience import until
from fakes.tenants import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC, Tenant
from gatehouse.apis.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    GATEWAY_CLASSES,
    GATEWAYS,
    NGINX_PROXIES,
    PODS,
    SECRETS,
    SERVICES,
)
from gatehouse.kube import client as kube
from gatehouse.standalone.node import pods
from kube_base.types.resource import Resource

pytestmark = pytest.mark.process

NAME = "web-gatehouse-nginx"
LABELS = {"app.kubernetes.io/managed-by": "gatehouse"}
WORKLOADS = DEPLOYMENTS.path("default")


@pytest.fixture
async def serving(client: kube.Client, backends: None) -> str:
    """Return the address of a Gateway once it serves."""
    try:
        await client.get(GATEWAYS, "web", "default")
    except kube.NotFound:
        await apply(client, hello())
    where = await address(client)
    await until(lambda: answers(where))
    return where


async def answers(where: str) -> bool:
    try:
        return (await get(where))[0] == 200
    except OSError:
        return False


def forged(name: str, note: Path, **metadata: Any) -> dict[str, Any]:
    """Make a Deployment that looks like a data plane and writes a file."""
    container = {
        "name": "nginx",
        "image": "gatehouse/nginx:local",
        "command": ["/bin/sh", "-c", f"id > {note}; sleep 60"],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {
                    "labels": {"app": name, **LABELS},
                    "annotations": {"gatehouse.dev/service-name": name},
                },
                "spec": {"containers": [container]},
            },
        },
    }


def balanced(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 8081}]},
    }


async def has_address(client: kube.Client, name: str) -> bool:
    """Return whether the node has seen a Service: a round has run since it was created."""
    service = await client.get(SERVICES, name, "default")
    return bool(((service.get("status") or {}).get("loadBalancer") or {}).get("ingress"))


async def owner(client: kube.Client) -> dict[str, Any]:
    gateway = await client.get(GATEWAYS, "web", "default")
    return {
        "apiVersion": GATEWAYS.api_version,
        "kind": "Gateway",
        "name": "web",
        "uid": gateway["metadata"]["uid"],
        "controller": True,
    }


@pytest.mark.parametrize("kind", ["deployments", "daemonsets"])
@pytest.mark.parametrize("owned", [False, True], ids=["label", "label-and-owner"])
async def test_user_cannot_create_a_data_plane(
    serving: str, tenant: Tenant, client: kube.Client, tmp_path: Path, kind: str, owned: bool
) -> None:
    name = f"forged-{kind}-{str(owned).lower()}-{tenant.role}"
    note = tmp_path / "note"
    await client.create(SERVICES, balanced(name))
    metadata: dict[str, Any] = {"labels": LABELS}
    if owned:
        deployment = await client.get(DEPLOYMENTS, NAME, "default")
        metadata["labels"] = deployment["metadata"]["labels"]
        metadata["ownerReferences"] = [await owner(client)]
    obj = forged(name, note, **metadata)
    if kind == "daemonsets":
        obj["kind"] = "DaemonSet"
    path = f"/apis/apps/v1/namespaces/default/{kind}"
    status, text = await tenant.send("POST", f"{path}?fieldManager=gatehouse", obj)
    assert status == 403, text
    message = json.loads(text)["message"]
    assert message.startswith(f'{kind}.apps "{name}" is forbidden: ')
    assert "metadata.labels[app.kubernetes.io/managed-by]" in message
    applied = f"{path}/{name}?fieldManager=gatehouse&force=true"
    status, text = await tenant.send("PATCH", applied, obj, APPLY)
    assert status == 403, text
    await until(lambda: has_address(client, name))
    assert not note.exists()


async def test_user_cannot_turn_an_existing_deployment_into_a_data_plane(
    serving: str, tenant: Tenant, client: kube.Client, tmp_path: Path
) -> None:
    note, name = tmp_path / "note", f"later-{tenant.role}"
    await client.create(SERVICES, balanced(name))
    status, text = await tenant.send("POST", WORKLOADS, forged(name, note))
    assert status == 201, text
    patch = {"metadata": {"labels": LABELS, "ownerReferences": [await owner(client)]}}
    for content_type in (MERGE, STRATEGIC):
        status, text = await tenant.send("PATCH", f"{WORKLOADS}/{name}", patch, content_type)
        assert status == 403, text
    await until(lambda: has_address(client, name))
    assert not note.exists()


async def test_user_cannot_change_the_data_plane_of_a_gateway(
    serving: str, tenant: Tenant, client: kube.Client, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    before = await client.get(DEPLOYMENTS, NAME, "default")
    pid = (await _process(client)).get("uid")
    template = forged(NAME, note)["spec"]["template"]
    command = template["spec"]["containers"][0]["command"]
    changed = copy.deepcopy(before)
    changed["spec"]["template"]["spec"]["containers"][0]["command"] = command
    unlabelled = copy.deepcopy(changed)
    del unlabelled["metadata"]["labels"]
    unlabelled["metadata"].pop("managedFields", None)
    applied = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {"template": {"spec": {"containers": [{"name": "nginx", "command": command}]}}},
    }
    place = "/spec/template/spec/containers/0/command"
    ways = [
        ("PUT", changed, JSON),
        ("PUT", unlabelled, JSON),
        ("PATCH", {"spec": {"template": {"spec": template["spec"]}}}, MERGE),
        ("PATCH", {"spec": {"template": {"spec": template["spec"]}}}, STRATEGIC),
        ("PATCH", [{"op": "replace", "path": place, "value": command}], JSON_PATCH),
        ("PATCH", applied, APPLY),
    ]
    for method, body, content_type in ways:
        path = f"{WORKLOADS}/{NAME}?fieldManager=gatehouse"
        path += "&force=true" if content_type == APPLY else ""
        status, text = await tenant.send(method, path, body, content_type)
        assert status == 403, (method, content_type, text)
    after = await client.get(DEPLOYMENTS, NAME, "default")
    assert after["spec"] == before["spec"]
    assert (await _process(client)).get("uid") == pid
    assert (await get(serving))[0] == 200
    assert not note.exists()


async def test_user_can_scale_and_delete_the_data_plane_of_a_gateway(
    serving: str, tenant: Tenant, client: kube.Client
) -> None:
    scale = {"spec": {"replicas": 2}}
    status, text = await tenant.send("PATCH", f"{WORKLOADS}/{NAME}/scale", scale, MERGE)
    assert status == 200, text
    before = (await client.get(DEPLOYMENTS, NAME, "default"))["metadata"]["uid"]
    status, text = await tenant.send("DELETE", f"{WORKLOADS}/{NAME}", {})
    assert status == 200, text

    async def made_again() -> bool:
        try:
            deployment = await client.get(DEPLOYMENTS, NAME, "default")
        except kube.NotFound:
            return False
        ready = (deployment.get("status") or {}).get("readyReplicas") == 1
        return bool(deployment["metadata"]["uid"] != before and ready)

    await until(made_again)


async def test_user_pod_with_the_name_of_a_data_plane_pod_is_not_run(
    serving: str, tenant: Tenant, client: kube.Client, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    current = await client.get(DEPLOYMENTS, NAME, "default")
    expected = copy.deepcopy(current)
    expected["spec"]["template"]["metadata"]["annotations"]["note"] = tenant.role
    name = pods.pod_for(expected, "local")["metadata"]["name"]
    spec = forged(name, note)["spec"]["template"]["spec"]
    spec["containers"][0]["livenessProbe"] = {"exec": {"command": ["/usr/bin/touch", str(note)]}}
    pod = {"metadata": {"name": name}, "spec": spec}
    status, text = await tenant.send("POST", PODS.path("default"), pod)
    assert status == 201, text
    change = {"spec": {"infrastructure": {"annotations": {"note": tenant.role}}}}
    status, text = await tenant.send("PATCH", f"{GATEWAYS.path('default')}/web", change, MERGE)
    assert status == 200, text

    async def replaced() -> bool:
        deployment = await client.get(DEPLOYMENTS, NAME, "default")
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        assert not note.exists()
        ready = (deployment.get("status") or {}).get("readyReplicas") == 1
        process = await _process(client)
        return annotations.get("note") == tenant.role and ready and process["name"] == name

    await until(replaced)
    await until(lambda: answers(serving))
    assert not note.exists()


async def test_replica_sets_and_pods_of_users_are_not_run_as_data_planes(
    serving: str, tenant: Tenant, client: kube.Client, tmp_path: Path
) -> None:
    note, name = tmp_path / "note", f"sets-{tenant.role}"
    await client.create(SERVICES, balanced(name))
    replica_set = forged(name, note, labels=LABELS, ownerReferences=[await owner(client)])
    replica_set["kind"] = "ReplicaSet"
    status, text = await tenant.send(
        "POST", "/apis/apps/v1/namespaces/default/replicasets", replica_set
    )
    assert status == 201, text
    pod = {"metadata": {"name": name, **replica_set["spec"]["template"]["metadata"]}}
    pod["metadata"]["ownerReferences"] = [await owner(client)]
    pod["spec"] = {**replica_set["spec"]["template"]["spec"], "nodeName": "local"}
    status, text = await tenant.send("POST", PODS.path("default"), pod)
    assert status == 201, text

    async def removed() -> bool:
        try:
            await client.get(PODS, name, "default")
        except kube.NotFound:
            return True
        return False

    await until(removed)
    assert not note.exists()


@pytest.mark.parametrize("resource", [CONFIG_MAPS, SECRETS], ids=["ConfigMap", "Secret"])
async def test_user_cannot_write_what_data_planes_mount(
    serving: str, tenant: Tenant, client: kube.Client, resource: Resource
) -> None:
    name = f"{NAME}-{tenant.role}"
    content = base64.b64encode(b"forged").decode() if resource is SECRETS else "forged"
    metadata = {"name": name, "labels": LABELS, "ownerReferences": [await owner(client)]}
    path = resource.path("default")
    status, text = await tenant.send("POST", path, {"metadata": metadata, "data": {"a": content}})
    assert status == 403, text
    if resource is CONFIG_MAPS:
        before = await client.get(CONFIG_MAPS, f"{NAME}-agent", "default")
        patch = {"data": {"ca.crt": "forged"}}
        unlabelled = {"metadata": {"labels": None}, **patch}
        for body, content_type in ((patch, MERGE), (unlabelled, MERGE), (patch, STRATEGIC)):
            status, text = await tenant.send("PATCH", f"{path}/{NAME}-agent", body, content_type)
            assert status == 403, text
        assert (await client.get(CONFIG_MAPS, f"{NAME}-agent", "default"))["data"] == before["data"]


async def test_user_cannot_take_the_address_of_another_service(
    serving: str, tenant: Tenant, client: kube.Client
) -> None:
    thief, victim = f"thief-{tenant.role}", f"victim-{tenant.role}"
    for name in (thief, victim):
        await client.create(SERVICES, balanced(name))
        await until(lambda service_name=name: has_address(client, service_name))  # type: ignore[misc]
    held = (await client.get(SERVICES, victim, "default"))["status"]
    claim = {"spec": {"loadBalancerIP": held["loadBalancer"]["ingress"][0]["ip"]}}
    path = f"{SERVICES.path('default')}/{thief}"
    status, text = await tenant.send("PATCH", path, claim, MERGE)
    assert status == 200, text

    async def claim_is_refused() -> bool:
        return not await has_address(client, thief)

    await until(claim_is_refused)
    assert (await client.get(SERVICES, victim, "default"))["status"] == held


async def test_deployment_without_gateway_owner_is_not_run(
    installation: Installation, serving: str, client: kube.Client, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    await client.create(SERVICES, balanced("stray"))
    await client.create(DEPLOYMENTS, forged("stray", note, labels=LABELS))
    message = "metadata.ownerReferences: not controlled by a Gateway"

    async def logged() -> bool:
        return message in (installation.state / "up.log").read_text()

    await until(logged)
    await until(lambda: has_address(client, "stray"))
    assert not note.exists()


async def test_parameters_of_a_gateway_cannot_set_commands(
    serving: str, client: kube.Client, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    before = await client.get(DEPLOYMENTS, NAME, "default")
    container = forged(NAME, note)["spec"]["template"]["spec"]["containers"][0]
    patch = {"value": {"spec": {"template": {"spec": {"containers": [container]}}}}}
    lifecycle = {"preStop": {"exec": {"command": container["command"]}}}
    deployment = {
        "patches": [patch],
        "container": {"lifecycle": lifecycle, "readinessProbe": {"periodSeconds": 1}},
    }
    metadata = {"name": "own", "namespace": "default"}
    spec = {"kubernetes": {"deployment": deployment}}
    await client.create(NGINX_PROXIES, {"metadata": metadata, "spec": spec})
    reference = {"group": NGINX_PROXIES.group, "kind": "NginxProxy", "name": "own"}
    change = {"spec": {"infrastructure": {"parametersRef": reference}}}
    await client.patch(GATEWAYS, "web", change, "default")
    condition = await holds(client, "Gateway", "web", "Accepted", "False")
    assert condition["reason"] == "InvalidParameters"
    fields = (
        "spec.kubernetes.deployment.patches",
        "spec.kubernetes.deployment.container.lifecycle.preStop.exec",
    )
    assert "NginxProxy default/own: " in condition["message"]
    assert all(field in condition["message"] for field in fields)

    async def provisioned() -> bool:
        deployment = await client.get(DEPLOYMENTS, NAME, "default")
        [only] = deployment["spec"]["template"]["spec"]["containers"]
        [was] = before["spec"]["template"]["spec"]["containers"]
        assert only["command"] == was["command"]
        assert "exec" not in str(only.get("lifecycle"))
        return bool(only["readinessProbe"]["periodSeconds"] == 1)

    await until(provisioned)
    await holds(client, "Gateway", "web", "Programmed")
    await until(lambda: answers(serving))
    assert not note.exists()


async def test_pod_that_pod_security_forbids_is_not_written_and_named_in_the_status(
    client: kube.Client,
) -> None:
    patch = {"value": {"spec": {"template": {"spec": {"hostNetwork": True}}}}}
    spec = {"kubernetes": {"deployment": {"patches": [patch]}}}
    metadata = {"name": "odd", "namespace": "default"}
    await client.create(NGINX_PROXIES, {"metadata": metadata, "spec": spec})
    reference = {"group": NGINX_PROXIES.group, "kind": "NginxProxy", **metadata}
    class_spec = {"controllerName": "gatehouse.dev/nginx", "parametersRef": reference}
    await client.create(GATEWAY_CLASSES, {"metadata": {"name": "odd"}, "spec": class_spec})
    listener = {"name": "http", "port": 8080, "protocol": "HTTP"}
    gateway = {"gatewayClassName": "odd", "listeners": [listener]}
    await client.create(GATEWAYS, {"metadata": metadata, "spec": gateway})

    async def is_named() -> bool:
        status = (await client.get(GATEWAYS, "odd", "default")).get("status") or {}
        messages = [
            condition["message"]
            for condition in status.get("conditions", ())
            if condition["type"] == "Programmed" and condition["status"] == "False"
        ]
        field = "Deployment default/odd-odd: spec.template.spec.hostNetwork: must not be set"
        return any(field in message for message in messages)

    await until(is_named)
    with pytest.raises(kube.NotFound):
        await client.get(DEPLOYMENTS, "odd-odd", "default")


async def _process(client: kube.Client) -> dict[str, Any]:
    """Return the metadata of the Pod that the data plane runs as."""
    listed = await client.list(PODS, "default")
    current = await client.get(DEPLOYMENTS, NAME, "default")
    uid = current["metadata"]["uid"]
    name = pods.pod_for(current, "local")["metadata"]["name"]
    for pod in listed.items:
        owners = [reference["uid"] for reference in pod["metadata"].get("ownerReferences") or ()]
        if uid in owners or pod["metadata"]["name"] == name:
            metadata: dict[str, Any] = pod["metadata"]
            return metadata
    return {"name": "", "uid": ""}
