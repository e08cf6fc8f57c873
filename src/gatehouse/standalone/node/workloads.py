"""Users' Pods as processes of this machine, where their images are known here.

A Pod that waits for a node and whose image stands in the table is taken over: it gets a network of
its own, its volumes as directories, and its process. Data planes are another matter (:mod:`node`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone.node import images, pods
from gatehouse.standalone.node.images import Images
from gatehouse.standalone.node.networks import NetworkError, Networks
from gatehouse.standalone.node.runner import Launch, Runner

log = structlog.get_logger("gatehouse.node")

Name = tuple[str, str]

RETRY = 1.0
"""Seconds until what was refused is tried again."""


class Workloads:
    """The users' Pods of one node; :meth:`run` follows them."""

    def __init__(
        self, client: kube.Client, node: str, directory: Path, known: Images, networks: Networks
    ) -> None:
        self._client = client
        self._node, self._directory = node, directory
        self._images, self._networks = known, networks
        self._woken = asyncio.Event()
        self._runners: dict[Name, tuple[Runner, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Look again: Pods changed."""
        self._woken.set()

    async def run(self, current: Mapping[Name, Mapping[str, Any]]) -> None:
        """Follow the Pods in ``current`` for ever."""
        if not self._images:
            return
        if self._networks.trouble:
            log.warning("users' Pods are not run", reason=self._networks.trouble)
            return
        await self._networks.retain([pod["metadata"]["uid"] for pod in current.values()])
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._round(current)
            except kube.Conflict:
                asyncio.get_running_loop().call_later(0.1, self.wake)
            except (kube.ApiError, NetworkError) as error:
                log.warning("round of Pods interrupted", error=str(error))
                asyncio.get_running_loop().call_later(RETRY, self.wake)

    def leave(self) -> None:
        """Stop watching over the Pods; their processes go on."""
        for _, task in self._runners.values():
            task.cancel()

    async def end(self) -> None:
        """End every Pod's process, and its network."""
        for name in list(self._runners):
            self._retire(name, remove=False)
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._networks.close()

    async def _round(self, current: Mapping[Name, Mapping[str, Any]]) -> None:
        mine = {name: pod for name, pod in current.items() if self._takes(pod)}
        for name in self._runners.keys() - mine.keys():
            self._retire(name, remove=False)
        for name, pod in mine.items():
            known = self._runners.get(name)
            if known is not None and known[0].pod["metadata"]["uid"] != pod["metadata"]["uid"]:
                self._retire(name, remove=False)
                known = None
            if pod["metadata"].get("deletionTimestamp"):
                if known is not None:
                    self._retire(name, remove=True)
                elif not self._ending:
                    await self._delete(name)
                continue
            if known is None:
                await self._host(name, pod, current)
            await self._report(name, pod)

    def _takes(self, pod: Mapping[str, Any]) -> bool:
        """Whether a Pod is ours to run."""
        labels = pod["metadata"].get("labels") or {}
        if labels.get(pods.MANAGED_BY[0]) == pods.MANAGED_BY[1]:
            return False
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return False
        node = pod.get("spec", {}).get("nodeName")
        waits = not node and not pod["metadata"].get("deletionTimestamp")
        return node == self._node or (waits and images.find(self._images, pod) is not None)

    async def _host(
        self, name: Name, pod: Mapping[str, Any], current: Mapping[Name, Mapping[str, Any]]
    ) -> None:
        image = images.find(self._images, pod)
        if image is None:
            return
        if not pod["spec"].get("nodeName"):
            patch = {"spec": {"nodeName": self._node}}
            pod = await self._client.patch(resources.PODS, name[1], patch, name[0])
        uid = pod["metadata"]["uid"]
        address = (pod.get("status") or {}).get("podIP", "")
        if not address:
            taken = {(other.get("status") or {}).get("podIP", "") for other in current.values()}
            taken |= {runner.address for runner, _ in self._runners.values()}
            address = self._networks.choose(uid, taken)
        await self._networks.make(uid, address)
        directory = pods.directory(self._directory, *name)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        words = images.words(image, pod["spec"]["containers"][0])
        launch = Launch(tuple(words), self._networks.enter(uid), image.env)
        runner = Runner(self._client, pod, address, directory, launch, self.wake)
        task = asyncio.create_task(runner.run())
        self._runners[name] = (runner, task)
        log.info("started", pod="/".join(name), address=address)

    def _retire(self, name: Name, *, remove: bool) -> None:
        """End a Pod's process, without others waiting for that."""
        runner, task = self._runners.pop(name)
        task.cancel()
        ending = asyncio.create_task(self._finish(name, runner, remove))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _finish(self, name: Name, runner: Runner, remove: bool) -> None:
        try:
            await runner.end()
            await self._networks.remove(runner.pod["metadata"]["uid"])
            if remove:
                await self._delete(name)
        except (kube.ApiError, NetworkError) as error:
            log.warning("Pod not ended", pod="/".join(name), error=str(error))
        self.wake()

    async def _delete(self, name: Name) -> None:
        try:
            await self._client.delete(resources.PODS, name[1], namespace=name[0], grace=0)
        except kube.NotFound:
            return

    async def _report(self, name: Name, pod: Mapping[str, Any]) -> None:
        if name not in self._runners:
            return
        runner = self._runners[name][0]
        status = pods.pod_status(pod, runner.address, runner.state, datetime.now(UTC))
        if pod.get("status") != status and pod["spec"].get("nodeName"):
            await self._client.update_status(resources.PODS, {**pod, "status": status})
