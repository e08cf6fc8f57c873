"""Workloads and Pods of users: nothing runs, and their statuses say why."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from fakes.installation import Installation
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.apis.resources import DAEMON_SETS, DEPLOYMENTS, JOBS, PODS
from gatehouse.kube import client as kube
from kube_base.types.resource import Resource

__all__ = ["installation"]

pytestmark = pytest.mark.process

MESSAGE = "this node runs data planes of Gatehouse only"


def workload(resource: Resource, name: str, note: Path) -> dict[str, Any]:
    """Return a workload that writes a file. A Job gets its selector from the API server."""
    command = ["/bin/sh", "-c", f"id > {note}; sleep 60"]
    container = {"name": "c", "image": "gatehouse/nginx:local", "command": command}
    policy = "Never" if resource == JOBS else "Always"
    pod = {"containers": [container], "restartPolicy": policy}
    labels = {"app": name}
    spec: dict[str, Any] = {"template": {"metadata": {"labels": labels}, "spec": pod}}
    if resource != JOBS:
        spec["selector"] = {"matchLabels": labels}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def reason(client: kube.Client, resource: Resource, name: str) -> str:
    obj = await client.get(resource, name, "default")
    conditions = (obj.get("status") or {}).get("conditions") or [{}]
    return str(conditions[0].get("message", ""))


@pytest.mark.parametrize("resource", [DEPLOYMENTS, DAEMON_SETS, JOBS], ids=lambda one: one.kind)
async def test_workload_of_a_user_is_not_run_and_reports_the_reason_once(
    client: kube.Client, tmp_path: Path, resource: Resource
) -> None:
    name, note = f"user-{resource.kind.lower()}", tmp_path / "note"
    await client.create(resource, workload(resource, name, note))

    async def told() -> bool:
        return await reason(client, resource, name) == MESSAGE

    await until(told)
    version = (await client.get(resource, name, "default"))["metadata"]["resourceVersion"]
    await _wait_for_pod_condition(client, f"after-{name}", note)
    obj = await client.get(resource, name, "default")
    assert obj["metadata"]["resourceVersion"] == version
    pods = (await client.list(PODS, "default")).items
    assert [pod for pod in pods if pod["metadata"]["name"].startswith(name)] == []
    assert not note.exists()


@pytest.mark.parametrize("node", ["", "local"])
async def test_pod_of_a_user_is_not_run_and_can_be_deleted(
    installation: Installation, client: kube.Client, tmp_path: Path, node: str
) -> None:
    name, note = f"user-pod-{node or 'pending'}", tmp_path / "note"
    await _wait_for_pod_condition(client, name, note, node)
    await client.delete(PODS, name, "default")

    async def gone() -> bool:
        return all(
            pod["metadata"]["name"] != name for pod in (await client.list(PODS, "default")).items
        )

    await until(gone)
    assert not note.exists()
    assert not list(installation.state.glob("node/pods/*"))


async def _wait_for_pod_condition(
    client: kube.Client, name: str, note: Path, node: str = ""
) -> None:
    spec = workload(DEPLOYMENTS, name, note)["spec"]["template"]["spec"]
    spec |= {"nodeName": node} if node else {}
    pod = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    await client.create(PODS, pod)

    async def told(name: str) -> bool:
        return await reason(client, PODS, name) == MESSAGE

    await until(functools.partial(told, name))
