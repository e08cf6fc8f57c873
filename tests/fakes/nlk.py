"""The real nginx-loadbalancer-kubernetes (nlk) 0.3 and 1.2 beside the embedded API server."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import peers
from fakes.inprocess import Server
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State
from kube_base.types.resource import Resource

VERSIONS = ("nlk-0.3", "nlk-1.2.7")
"""Names of the programs."""
ACCOUNT = Resource("", "v1", "serviceaccounts", "ServiceAccount")
BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
IN_CLUSTER = """
set -e
mount -t tmpfs tmpfs /etc
mount -t tmpfs tmpfs /run
mkdir -p /etc/nginxaas-loadbalancer-kubernetes /run/secrets/kubernetes.io
[ -e /var/run ] || mkdir -p /var/run
[ /var/run -ef /run ] || mount --bind /run /var/run
cp "$1/config.yaml" /etc/nginxaas-loadbalancer-kubernetes/
cp -r "$1/serviceaccount" /run/secrets/kubernetes.io/
exec "$2"
"""
"""Files of a Pod at their paths, in a mount namespace of the process."""


RESOURCES: dict[str, Resource] = {
    "Node": resources.NODES,
    "Service": resources.SERVICES,
    "EndpointSlice": resources.ENDPOINT_SLICES,
    "ConfigMap": resources.CONFIG_MAPS,
}


async def create(client: kube.Client, raw: dict[str, Any]) -> None:
    """Create an object of :mod:`fakes.load_balancer_world`, with its status."""
    resource = RESOURCES[raw["kind"]]
    created = await client.create(resource, body_of(raw))
    if raw["kind"] in ("Node", "Service"):
        await client.update_status(resource, {**created, "status": status_of(raw)})


def body_of(raw: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what the server sets."""
    body = {name: value for name, value in raw.items() if name != "status"}
    metadata = {key: value for key, value in raw["metadata"].items() if key != "creationTimestamp"}
    if not metadata["namespace"]:
        del metadata["namespace"]
    return {**body, "metadata": metadata}


def status_of(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the status of a Node or a Service that nlk reads."""
    if raw["kind"] == "Service":
        return dict(raw["status"])
    addresses = [entry for entry in raw["status"]["addresses"] if entry["type"] == "InternalIP"]
    return {"addresses": addresses}


async def pod_files(server: Server, client: kube.Client, directory: Path, text: str) -> None:
    """Write the configuration and the credentials of a Pod."""
    await client.create(ACCOUNT, {"metadata": {"name": "nlk", "namespace": "nlk"}})
    subject = {"kind": "ServiceAccount", "name": "nlk", "namespace": "nlk"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "nlk"}, "subjects": [subject], "roleRef": role}
    await client.create(BINDINGS, binding)
    path = "/api/v1/namespaces/nlk/serviceaccounts/nlk/token"
    async with server.raw() as session, session.post(path, json={"spec": {}}) as response:
        token = (await response.json())["status"]["token"]
    account = directory / "serviceaccount"
    account.mkdir(parents=True)
    (account / "token").write_text(token)
    shutil.copy(server.state.pki.ca().cert, account / "ca.crt")
    (directory / "config.yaml").write_text(text)


@contextlib.contextmanager
def process(command: list[str], log: Path, **environment: str) -> Iterator[None]:
    with log.open("wb") as out:
        running = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **environment}
        )
    try:
        yield
    finally:
        running.kill()
        running.wait()


def last_lines(log: Path) -> str:
    return log.read_text()[-3000:]


def namespaces() -> list[str]:
    """Return the command for a mount namespace. Skips the test if there are none."""
    command = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("no mount namespaces: nlk 1.2 reads files of a Pod at fixed paths")
    return command


@contextlib.asynccontextmanager
async def cluster(tmp_path: Path, *objects: Any) -> AsyncIterator[tuple[Server, kube.Client]]:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client:
        for name in ("nlk", "nginx-ingress"):
            await client.create(resources.NAMESPACES, {"metadata": {"name": name}})
        for raw in objects:
            await create(client, raw)
        yield server, client


@contextlib.asynccontextmanager
async def running_nlk(
    version: str, server: Server, client: kube.Client, directory: Path, text: str = ""
) -> AsyncIterator[Path]:
    """Run nlk. Yield its log. ``text``: configuration file of 1.x; 0.3 reads its ConfigMap."""
    log = directory / "nlk.log"
    binary = str(peers.binary(version, "nlk"))
    if not text:
        with process([binary], log, KUBECONFIG=str(server.state.kubeconfig)):
            yield log
        return
    pod = directory / "pod"
    await pod_files(server, client, pod, text)
    command = [*namespaces(), "sh", "-c", IN_CLUSTER, "sh", str(pod), binary]
    address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
    with process(command, log, **address):
        yield log
