"""Pods of one node as processes, each in a network namespace.

Containers of one Pod share an image. The first one's HTTP probes stand for all; gRPC probes are
not supported, so that such a Pod is ready as soon as its process runs.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from fakes.workloads import images
from fakes.workloads.images import Image, Images
from fakes.workloads.pod_networks import NetworkError, PodNetworks
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone.node import pods
from gatehouse.standalone.node.runner import Launch, PodRunner

log = structlog.get_logger("fakes.workloads")

Name = tuple[str, str]
Object = Mapping[str, Any]

RETRY_SECONDS = 0.2


class UserPods:
    """Runs the Pods of one node."""

    def __init__(
        self,
        client: kube.Client,
        node: str,
        directory: Path,
        known_images: Images,
        networks: PodNetworks,
    ) -> None:
        self._client, self._node, self._directory = client, node, directory
        self._images, self._networks = known_images, networks
        self._wake_up = asyncio.Event()
        self._runners: dict[Name, tuple[PodRunner, asyncio.Task[None]]] = {}
        self._ending: dict[Name, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Reconcile soon. Call this when Pods changed."""
        self._wake_up.set()

    async def run(self, current: Mapping[Name, Object]) -> None:
        """Reconcile with the Pods in ``current`` until cancelled."""
        while True:
            await self._wake_up.wait()
            self._wake_up.clear()
            mine = {n: p for n, p in current.items() if p["spec"].get("nodeName") == self._node}
            for name in self._runners.keys() - mine.keys():
                self._retire(name)
            for name, pod in mine.items():
                try:
                    await self._reconcile(name, pod)
                except (kube.ApiError, NetworkError) as error:
                    # Mostly the informer is stale, or the Pod is gone.
                    log.debug("pass failed", error=str(error))
                    asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)

    async def end(self) -> None:
        """Terminate the processes of all Pods and delete their networks."""
        for name in list(self._runners):
            self._retire(name)
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
        await self._networks.close()

    async def _reconcile(self, name: Name, pod: Object) -> None:
        if name in self._ending:
            return
        if pod["metadata"].get("deletionTimestamp"):
            if name in self._runners:
                self._retire(name)
            else:
                await self._delete(name)
            return
        if name not in self._runners:
            await self._start(name, pod)
        runner = self._runners[name][0]
        status = pods.pod_status(pod, runner.address, runner.state, datetime.now(UTC))
        if pod.get("status") != status:
            await self._client.update_status(resources.PODS, {**pod, "status": status})

    async def _start(self, name: Name, pod: Object) -> None:
        image = images.find(self._images, pod)
        assert image is not None, name
        uid = pod["metadata"]["uid"]
        address = self._networks.choose(
            uid, {runner.address for runner, _ in self._runners.values()}
        )
        await self._networks.create(uid, address)
        directory = pods.directory(self._directory, *name)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        launch = Launch(
            (*self._networks.enter(uid), *_command_line(image, pod, address)), env=image.env
        )
        own = _with_port_numbers(pod)
        runner = PodRunner(self._client, own, address, directory, launch, self.wake)
        self._runners[name] = (runner, asyncio.create_task(runner.run()))

    def _retire(self, name: Name) -> None:
        runner, task = self._runners.pop(name)
        task.cancel()
        self._ending[name] = asyncio.create_task(self._finish(name, runner))

    async def _finish(self, name: Name, runner: PodRunner) -> None:
        try:
            await runner.end()
            await self._networks.remove(runner.pod["metadata"]["uid"])
            await self._delete(name)
        except kube.ApiError as error:
            log.warning("Pod not deleted", pod="/".join(name), error=str(error))
        finally:
            del self._ending[name]
            self.wake()

    async def _delete(self, name: Name) -> None:
        try:
            await self._client.delete(resources.PODS, name[1], namespace=name[0], grace=0)
        except kube.NotFound:
            return


def _command_line(image: Image, pod: Object, address: str) -> list[str]:
    """Return the words of the command that runs all containers of a Pod."""
    commands = [
        _container_command(image, pod, container, address)
        for container in pod["spec"]["containers"]
    ]
    if len(commands) == 1:
        return commands[0]
    started = " ".join(f"{shlex.join(command)} &" for command in commands)
    # The first container that ends takes the others along: then the Pod starts again.
    return ["bash", "-c", f"trap 'kill $(jobs -p)' EXIT; trap exit TERM; {started} wait -n"]


def _container_command(image: Image, pod: Object, container: Object, address: str) -> list[str]:
    """Return the words of a container's command, with ``$(NAME)`` expanded."""
    words = [*(container.get("command") or image.command), *(container.get("args") or ())]
    alone = {**pod, "spec": {**pod["spec"], "containers": [container]}}
    variables = pods.container_environment(alone, address)
    expanded = [pods.expand(word, variables) for word in words]
    if container is pod["spec"]["containers"][0]:
        # The environment of the Pod's process.
        return expanded
    return ["env", *(f"{name}={value}" for name, value in variables.items()), *expanded]


def _with_port_numbers(pod: Object) -> Object:
    """Return a Pod whose probes have numbers of ports instead of names."""
    first, *others = pod["spec"]["containers"]
    numbers = {
        declared.get("name"): declared["containerPort"] for declared in first.get("ports") or ()
    }
    changed = dict(first)
    for probe in ("readinessProbe", "livenessProbe"):
        if http_get := (first.get(probe) or {}).get("httpGet"):
            port = numbers.get(http_get["port"], http_get["port"])
            changed[probe] = {**first[probe], "httpGet": {**http_get, "port": port}}
    return {**pod, "spec": {**pod["spec"], "containers": [changed, *others]}}
