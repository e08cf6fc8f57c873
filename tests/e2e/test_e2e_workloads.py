"""A user's Deployment on one machine: its Pods run, are found by their Service, have logs."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from fakes.installation import Installation, until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import process_records
from gatehouse.standalone.node.pod_networks import PodNetworks

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and ip"),
]

NETWORK = f"10.{random.randint(128, 250)}.{random.randint(0, 255)}.0/24"
SERVE = (
    "import http.server as h, sys; print('begins', flush=True); "
    "h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[1]))"
)


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        images = Path(directory) / "images.yaml"
        command = [sys.executable, "-u", "-c", SERVE, "8000"]
        images.write_text(yaml.safe_dump({"example.com/web": {"command": command}}))
        made = Installation(Path(directory), "--images", str(images), "--pod-network", NETWORK)
        made.start()
        yield made
        made.stop()


DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "web",
                        "image": "example.com/web:v1",
                        "env": [{"name": "SETTINGS", "value": "/etc/web/settings"}],
                        "volumeMounts": [{"name": "settings", "mountPath": "/etc/web"}],
                    }
                ],
                "volumes": [{"name": "settings", "configMap": {"name": "late"}}],
            },
        },
    },
}
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
}


async def test_pods_run_are_found_and_go(installation: Installation) -> None:
    client = await installation.client()
    try:
        await _story(client, installation)
    finally:
        await client.__aexit__(None, None, None)


async def _story(client: kube.Client, installation: Installation) -> None:
    async def pods() -> list[dict[str, Any]]:
        result = await client.list(resources.PODS, "default", label_selector="app=web")
        return list(result.items)

    await client.create(resources.DEPLOYMENTS, DEPLOYMENT)
    await client.create(resources.SERVICES, SERVICE)

    async def waiting() -> Any:
        containers = [
            status["state"].get("waiting", {}).get("message", "")
            for pod in await pods()
            for status in pod.get("status", {}).get("containerStatuses", ())
        ]
        return len(containers) == 2 and all("late not found" in text for text in containers)

    # As a kubelet would: a Pod waits for what its volumes name.
    await until(waiting)
    late = {"metadata": {"name": "late", "namespace": "default"}, "data": {"settings": "1"}}
    await client.create(resources.CONFIG_MAPS, late)

    async def addresses() -> Any:
        slices = await client.list(resources.ENDPOINT_SLICES, "default")
        result = [
            endpoint["addresses"][0]
            for each in slices.items
            if each["metadata"]["labels"].get("kubernetes.io/service-name") == "web"
            for endpoint in each["endpoints"]
            if endpoint["conditions"]["ready"]
        ]
        return result if len(result) == 2 else None

    for address in await until(addresses):
        await until(functools.partial(_answers, f"http://{address}:8000/"))
    await _logs(installation, (await pods())[0]["metadata"]["name"])
    await client.delete(resources.DEPLOYMENTS, "web", "default")

    async def gone() -> bool:
        names = await asyncio.to_thread(
            subprocess.run, ("ip", "-j", "netns"), capture_output=True, check=True
        )
        left = [each["name"] for each in json.loads(names.stdout or b"[]")]
        mine = PodNetworks(NETWORK).name("").rpartition("-")[0]
        return not await pods() and not any(name.startswith(mine) for name in left)

    await until(gone)


async def test_a_pod_that_cannot_run_says_why(installation: Installation) -> None:
    client = await installation.client()
    secret = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    container = {"name": "c", "image": "example.com/web:v1", "env": [secret]}
    waits = {
        "metadata": {"name": "waits", "namespace": "default"},
        "spec": {"containers": [container]},
    }
    other = {"name": "c", "image": "example.com/other:v1"}
    bound = {
        "metadata": {"name": "bound", "namespace": "default"},
        "spec": {"nodeName": "local", "containers": [other]},
    }

    async def said(name: str, words: str) -> bool:
        return words in json.dumps(await client.get(resources.PODS, name, "default"))

    try:
        await client.create(resources.PODS, waits)
        await client.create(resources.PODS, bound)
        await until(functools.partial(said, "waits", "secretKeyRef is not supported by this node"))
        await until(functools.partial(said, "bound", "ErrImageNeverPull"))
        for name in ("waits", "bound"):
            await client.delete(resources.PODS, name, "default")

        async def gone() -> bool:
            return not (await client.list(resources.PODS, "default")).items

        # The node lets go of what it never ran.
        await until(gone)
    finally:
        await client.__aexit__(None, None, None)


async def test_a_killed_node_adopts_what_stays_and_ends_what_went(
    installation: Installation,
) -> None:
    client = await installation.client()
    try:
        await _aftermath(client, installation)
    finally:
        await client.__aexit__(None, None, None)


async def _aftermath(client: kube.Client, installation: Installation) -> None:
    deployment = copy.deepcopy(DEPLOYMENT)
    deployment["metadata"]["name"] = "left"
    deployment["spec"]["replicas"] = 3
    deployment["spec"]["selector"]["matchLabels"] = {"app": "left"}
    template = deployment["spec"]["template"]
    template["metadata"]["labels"] = {"app": "left"}
    template["spec"] = {"containers": [{"name": "left", "image": "example.com/web:v1"}]}

    async def ready() -> Any:
        pods = await client.list(resources.PODS, "default", label_selector="app=left")
        running = [
            pod["metadata"]
            for pod in pods.items
            for each in pod.get("status", {}).get("containerStatuses", ())
            if each["ready"] and not pod["metadata"].get("deletionTimestamp")
        ]
        return running if len(running) == len(pods.items) == 3 else None

    await client.create(resources.DEPLOYMENTS, deployment)
    stays, killed, ended = await until(ready)
    before = processes_of(installation)
    node = installation.part("node")
    # Stopped, so that it can learn of nothing before it is killed.
    node.signal(signal.SIGSTOP)
    await client.delete(resources.PODS, killed["name"], "default", grace=0)
    await client.delete(resources.PODS, ended["name"], "default")
    node.signal(signal.SIGKILL)

    async def settled() -> bool:
        now = await ready()
        uids = {metadata["uid"] for metadata in now or ()}
        return stays["uid"] in uids and killed["uid"] not in uids and ended["uid"] not in uids

    await until(settled)
    after = processes_of(installation)
    assert after[stays["uid"]] == before[stays["uid"]]
    for gone in (killed["uid"], ended["uid"]):
        assert gone not in after
        assert not before[gone].alive()
        assert not has_network(gone)
    await client.delete(resources.DEPLOYMENTS, "left", "default")

    async def gone_all() -> bool:
        return not processes_of(installation)

    await until(gone_all)


def has_network(uid: str) -> bool:
    return Path(f"/run/netns/{PodNetworks(NETWORK).name(uid)}").exists()


def processes_of(installation: Installation) -> dict[str, process_records.Record]:
    """Return the running processes of users' Pods, by uid."""
    result = {}
    for path in installation.state.glob("node/pods/*/uid"):
        record = process_records.recorded(path.with_name("process.json"))
        if record is not None:
            result[path.read_text()] = record
    return result


async def _answers(url: str) -> bool:
    # Without a probe a container is ready as soon as it runs.
    with contextlib.suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status == 200
    return False


async def _logs(installation: Installation, name: str) -> None:
    command = shutil.which("kubectl")
    if command is None:
        return

    async def kubectl(*words: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            (command, *words),
            env={**os.environ, "KUBECONFIG": str(installation.kubeconfig)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    logs = functools.partial(kubectl, "logs", name)
    whole = await logs()
    assert whole.startswith("begins")
    assert "GET / " in whole
    assert "begins" not in await logs("--tail=1")
    assert await logs("--since-time=2999-01-01T00:00:00Z") == ""
    assert await logs("--since=1h") == whole
    stamped = (await logs("--timestamps")).splitlines()
    assert [line.partition(" ")[2] for line in stamped] == whole.splitlines()
    moments = [datetime.fromisoformat(line.partition(" ")[0]) for line in stamped]
    assert moments == sorted(moments)
    # By kubectl logs, times are of whole seconds only.
    since = stamped[-1].partition(" ")[0]
    path = f"/api/v1/namespaces/default/pods/{name}/log?sinceTime={since}"
    assert "begins" not in await kubectl("get", "--raw", path)
