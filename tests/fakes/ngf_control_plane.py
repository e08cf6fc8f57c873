"""The control plane of NGINX Gateway Fabric, and files of its data plane's image.

Program and source are no part of the project: see :mod:`fakes.peers`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes import agent_command, kubectls, peers
from fakes.kubectls import Kubectl
from fakes.machines import CUT, POSSIBLE, Machine
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from kube_base.types.resource import Resource

RELEASE = "2.6.7"
PORT = 8443
"""Port of its agents' channel, which has no option. So it needs a network namespace of its own."""
NAMESPACE = "nginx-gateway"
SERVER_NAME = f"nginx-gateway.{NAMESPACE}.svc"
_CREDENTIALS = "/run/secrets/ngf"
"""Directory of its certificates, which has no option."""
_COMPLAINT = re.compile(r'"level":"(error|warn|dpanic|panic|fatal)"|^[EWF]\d{4} ')
"""Complaint in a log: of the program itself, or of the Kubernetes client."""
_MOUNT = 'mount -t tmpfs none /run && mkdir -p "$1" && cp "$0"/* "$1" && shift && exec "$@"'


def require() -> Path:
    """Return the program. Skip the test if it is missing or cannot run."""
    if not POSSIBLE:
        pytest.skip(f"namespaces {CUT}")
    return peers.binary(f"ngf-v{RELEASE}", "gateway")


def unpack_source(directory: Path) -> Path:
    """Unpack the files of the release that tests need. Skip the test if they are missing."""
    needed = ("deploy/crds.yaml", "deploy/snippets/", "controller/nginx/conf/", "modules/src/")
    for name, content in peers.source_files(f"ngf-v{RELEASE}", *needed).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


def write_image_files(source: Path, etc_nginx: Path) -> None:
    """Write the files that the image of the data plane has in ``/etc/nginx``."""
    nginx = source / "internal" / "controller" / "nginx"
    shutil.copytree(nginx / "conf", etc_nginx)
    shutil.copytree(nginx / "modules" / "src", etc_nginx / "modules" / "njs")
    (etc_nginx / "mime.types").write_text("types { text/html html; }\n")


class NGFControlPlane:
    """One control plane as its release installs it, with the rights of its ServiceAccount."""

    def __init__(self, directory: Path, source: Path, kubeconfig: Path) -> None:
        """Set up the directories. ``kubeconfig`` is that of the administrator."""
        self.log = directory / "ngf.log"
        self.credentials = directory / "credentials"
        self._directory, self._kubeconfig = directory, kubeconfig
        self._program, self._deploy = require(), source / "deploy"
        self._arguments: dict[str, list[str]] = {}

    async def install(self, client: kube.Client) -> None:
        """Apply the manifests of its release, and run the Job that creates its certificates."""
        administrator = Kubectl(kubectls.newest(), self._kubeconfig, self._directory, NAMESPACE)
        manifests = self._deploy / "snippets" / "deploy.yaml"
        crds = ("apply", "--server-side", "-f", str(self._deploy / "crds.yaml"))
        await asyncio.to_thread(administrator, *crds)
        await asyncio.to_thread(administrator, "apply", "-f", str(manifests))
        for manifest in yaml.safe_load_all(manifests.read_text()):
            if manifest["kind"] in ("Deployment", "Job"):
                pod = manifest["spec"]["template"]["spec"]
                (container,) = pod["containers"]
                self._arguments[manifest["kind"]] = container["args"]
                await self._write_kubeconfig(client, manifest["kind"], pod["serviceAccountName"])
            if manifest["kind"] == "Deployment":
                await asyncio.to_thread(_create_pod, administrator, manifest)
        self.credentials.mkdir()
        generate = await asyncio.create_subprocess_exec(
            *(str(self._program), *self._arguments["Job"]), env=self._environment("Job")
        )
        assert await generate.wait() == 0
        secret = await client.get(resources.SECRETS, "server-tls", NAMESPACE)
        for name, value in secret["data"].items():
            (self.credentials / name).write_bytes(base64.b64decode(value))

    async def _write_kubeconfig(self, client: kube.Client, workload: str, account: str) -> None:
        """Write the kubeconfig of a workload, with the token of its ServiceAccount."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        token, _ = await client.create_token(NAMESPACE, account, [])
        for user in config["users"]:
            user["user"] = {"token": token}
        (self._directory / f"{workload}.kubeconfig").write_text(yaml.safe_dump(config))

    def _environment(self, workload: str) -> dict[str, str]:
        return {
            **os.environ,
            "KUBECONFIG": str(self._directory / f"{workload}.kubeconfig"),
            "POD_NAMESPACE": NAMESPACE,
            "POD_NAME": "nginx-gateway-0",
            "POD_UID": "8a3f2d3e-0000-4000-8000-000000000001",
            "INSTANCE_NAME": "nginx-gateway",
            "IMAGE_NAME": f"ghcr.io/nginx/nginx-gateway-fabric:{RELEASE}",
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it with the arguments of its Deployment.

        It sends no reports to its vendor. Data planes have the same network namespace and use its
        ports for health checks and metrics.
        """
        own = ("--product-telemetry-disable", "--health-port=8082", "--metrics-port=9114")
        arguments = (*self._arguments["Deployment"], *own)
        inside = ("unshare", "--mount", "sh", "-c", _MOUNT, str(self.credentials), _CREDENTIALS)
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(*inside, str(self._program), *arguments),
                env=self._environment("Deployment"),
                stdout=log,
                stderr=log,
            )
        try:
            yield
        finally:
            process.kill()
            await process.wait()

    def errors(self) -> list[str]:
        """Return the lines of its log that report errors or warnings."""
        lines = self.log.read_text().splitlines()
        assert any("Successfully acquired lease" in line for line in lines), lines[-20:]
        return [line for line in lines if _COMPLAINT.search(line)]


def _create_pod(administrator: Kubectl, deployment: dict[str, Any]) -> None:
    """Create the ReplicaSet of the Deployment and its Pod, as controllers of a cluster would."""
    template = deployment["spec"]["template"]
    owner = administrator.json("get", "deployment", NAMESPACE)
    for kind, name, spec in (
        ("ReplicaSet", "nginx-gateway-1", deployment["spec"]),
        ("Pod", "nginx-gateway-0", template["spec"]),
    ):
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        metadata = {**template["metadata"], "name": name, "ownerReferences": [reference]}
        version = "v1" if kind == "Pod" else "apps/v1"
        raw = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        administrator("create", "-f", "-", stdin=raw)
        owner = administrator.json("get", kind, name)


class NGFDataPlane:
    """Gatehouse's agent in the place of NGINX Agent, with the settings of the control plane."""

    def __init__(self, directory: Path, source: Path, machine: Machine | None = None) -> None:
        """Set up the directories.

        ``machine``: the second of two joined machines; the control plane runs on the first.
        """
        self.log = directory / "agent.log"
        self._machine = machine
        self.etc_nginx = directory / "etc" / "nginx"
        self._directory, self._credentials = directory, directory / "credentials"
        self._credentials.mkdir(parents=True)
        subprocess.run(["cp", "-a", "/etc", str(directory)], check=True)
        shutil.rmtree(self.etc_nginx, ignore_errors=True)
        write_image_files(source, self.etc_nginx)

    async def configure(self, client: kube.Client, gateway: str) -> None:
        """Create the Pod of the data plane, and write what the Pod would have mounted."""
        name = f"{gateway}-nginx"
        container = {"name": "nginx", "image": "ghcr.io/nginx/nginx-gateway-fabric/nginx"}
        labels = {"app.kubernetes.io/name": name}
        metadata = {"name": f"{name}-0", "namespace": "default", "labels": labels}
        spec = {"serviceAccountName": name, "containers": [container]}
        await until(lambda: _existing(client, resources.DEPLOYMENTS, name))
        await client.create(resources.PODS, {"metadata": metadata, "spec": spec})
        await until(lambda: _run_pod(client, f"{name}-0"))
        secret = await client.get(resources.SECRETS, f"{name}-agent-tls", "default")
        for file, value in secret["data"].items():
            (self._credentials / file).write_bytes(base64.b64decode(value))
        token, _ = await client.create_token("default", name, [SERVER_NAME])
        (self._credentials / "serviceaccount").mkdir()
        (self._credentials / "serviceaccount" / "token").write_text(token)
        settings = await client.get(resources.CONFIG_MAPS, f"{name}-agent-config", "default")
        (text,) = settings["data"].values()
        (self._directory / "nginx-agent.conf").write_text(text)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the agent where ``/etc`` and ``/run`` are those of this data plane."""
        environ = {
            "NGINX_AGENT_COMMAND_SERVER_HOST": "192.0.2.1" if self._machine else "127.0.0.1",
            "NGINX_AGENT_COMMAND_SERVER_PORT": str(PORT),
            "GATEHOUSE_AGENT_STATE_DIR": str(self._directory / "root"),
            "GATEHOUSE_AGENT_RUN_DIR": str(self._directory / "run"),
            "GATEHOUSE_AGENT_WORKERS": "1",
            "POD_NAME": "web-nginx-0",
        }
        script = (
            'mount --bind "$0/etc" /etc && mount -t tmpfs none /run && mkdir -p /run/nginx '
            '/run/secrets && cp -a "$0/credentials" /run/secrets/ngf && exec "$@"'
        )
        inside = ["unshare", "--mount", "sh", "-c", script, str(self._directory)]
        if self._machine:
            inside = self._machine.enter(*inside)
        options = ("--config", str(self._directory / "nginx-agent.conf"))
        async with agent_command.agent(environ, self.log, *options, inside=inside):
            yield


async def _run_pod(client: kube.Client, name: str) -> bool:
    """Set the phase of a Pod. Return False if another writer changed the Pod."""
    pod = await client.get(resources.PODS, name, "default")
    with contextlib.suppress(kube.Conflict):
        await client.update_status(resources.PODS, {**pod, "status": {"phase": "Running"}})
        return True
    return False


async def _existing(client: kube.Client, resource: Resource, name: str) -> bool:
    with contextlib.suppress(kube.NotFound):
        return bool(await client.get(resource, name, "default"))
    return False
