"""A cluster in which Gatehouse's own Deployments run, as its manifests have them.

The API server is a process of the test's. `gatehouse node` gives Services addresses, and a process
of :mod:`fakes.workloads` runs all Pods, each in a network of its own, to which Services lead.
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from fakes import patience
from fakes.builds import ROOT, Build
from fakes.patience import until
from fakes.process import ApiServer
from fakes.workloads.command import Workloads
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import pki
from gatehouse.standalone.free_ports import is_free

NAMESPACE, NAME = "gatehouse-system", "gatehouse"
CHANNEL = "10.96.77.1:443"
"""Of the Service that agents connect to: Pods of this node have no name server."""

Object = dict[str, Any]


class Server(ApiServer):
    """An API server that Pods reach."""

    def command(self) -> list[str]:
        words = super().command()
        words[words.index("--bind-address") + 1] = f"0.0.0.0:{self.port}"
        return words


class Cluster:
    """An API server, a node and Pods; ``builds`` by the tag of their images."""

    def __init__(self, directory: Path, builds: dict[str, Build], pool: str) -> None:
        self.directory, self.pool = directory, pool
        self.server = Server(directory / "s", "--node-dir", str(directory / "s" / "node"))
        commands = {"controller": [], "nginx": ["agent"], "envoy": ["agent", "--proxy", "envoy"]}
        table = {
            f"gatehouse/{name}:{tag}": {
                "command": ["gatehouse", *words],
                "env": build.environment,
            }
            for tag, build in builds.items()
            for name, words in commands.items()
        }
        self._workloads = Workloads(self.server.kubeconfig, self.server.state.node, table)
        self.gateway = self._workloads.gateway
        self._node: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self.server.state.node.mkdir()
        self.server.start(self.directory / "apiserver.log")
        words = (
            *("--kubeconfig", str(self.server.state.node_kubeconfig)),
            *("--dir", str(self.server.state.node), "--address-pool", self.pool),
        )
        self._node = _node(words, self.directory / "node.log")
        self._workloads.start(self.directory / "workloads.log")

        async def bridged() -> bool:
            return is_free(self.gateway, 0)

        await until(bridged)

    def stop(self) -> None:
        self._workloads.stop()
        if self._node is not None:
            self._node.terminate()
            self._node.wait(patience.SECONDS)
        self.server.stop()

    def show_logs(self) -> None:
        """Print how every log ends, which is seen when a test fails."""
        logs = (self.directory / "node.log", self.directory / "workloads.log")
        for path in (*logs, *self.server.state.node.glob("pods/*/log")):
            print(path, *path.read_text(errors="replace").splitlines()[-20:], sep="\n")

    async def install(self, client: kube.Client, tag: str, *options: str) -> None:
        """Create what the manifests have, as far as Pods of this node need it.

        ``options``: more options of the controller.
        """
        state = self.server.state
        with contextlib.suppress(kube.AlreadyExists):
            await client.create(resources.NAMESPACES, {"metadata": {"name": NAMESPACE}})
        where = {"namespace": NAMESPACE}
        await client.create(resources.SERVICE_ACCOUNTS, {"metadata": {**where, "name": NAME}})
        pair = state.pki.leaf(pki.CHANNEL)
        files = {"tls.crt": pair.cert, "tls.key": pair.key, "ca.crt": state.pki.ca().cert}
        channel = {key: path.read_bytes() for key, path in files.items()}
        for name, contents in (
            ("gatehouse-channel", channel),
            # Where the API server is, which a Pod's environment says in other clusters.
            ("api", {"kubeconfig": self._kubeconfig()}),
        ):
            data = {key: base64.b64encode(value).decode() for key, value in contents.items()}
            await client.create(
                resources.SECRETS, {"metadata": {**where, "name": name}, "data": data}
            )
        service = _manifest("Service")
        service["spec"]["clusterIP"] = CHANNEL.partition(":")[0]
        await client.create(resources.SERVICES, service)
        deployment = self.deployment(tag, tag)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        container["args"] += options
        await client.create(resources.DEPLOYMENTS, deployment)

    def deployment(self, tag: str, planes: str) -> Object:
        """Return the controller's Deployment with the images of controller and data planes."""
        deployment = _manifest("Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        container["image"] = f"gatehouse/controller:{tag}"
        changed = {
            "--agent-advertise-address": CHANNEL,
            "--nginx-image": f"gatehouse/nginx:{planes}",
            "--envoy-image": f"gatehouse/envoy:{planes}",
        }
        words = []
        for word in container["args"]:
            # Paths that are mounted are known at the beginning of a word.
            name, _, value = word.partition("=")
            words += [name, changed.get(name, value)] if value else [name]
        container["args"] = [*words, "--kubeconfig", "/etc/gatehouse/api/kubeconfig"]
        container["volumeMounts"].append({"name": "api", "mountPath": "/etc/gatehouse/api"})
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        volumes.append({"name": "api", "secret": {"secretName": "api"}})
        return deployment

    def _kubeconfig(self) -> bytes:
        state = self.server.state
        text = yaml.load(state.controller_kubeconfig.read_text(), yaml.CSafeLoader)
        cluster = text["clusters"][0]["cluster"]
        cluster["server"] = f"https://{self.gateway}:{self.server.port}"
        cluster["tls-server-name"] = "kubernetes.default.svc"
        return yaml.dump(text, Dumper=yaml.CSafeDumper).encode()


def _node(words: tuple[str, ...], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gatehouse", "--log-format", "json", "node", *words]
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def _manifest(kind: str) -> Object:
    result = yaml.load_all((ROOT / "deploy" / "gatehouse.yaml").read_text(), yaml.CSafeLoader)
    document: Object = next(
        candidate
        for candidate in result
        if candidate and candidate["kind"] == kind and candidate["metadata"]["name"] == NAME
    )
    return document
