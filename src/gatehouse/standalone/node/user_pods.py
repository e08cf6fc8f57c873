"""Pods as processes of this machine, where their images are known here.

A Pod that waits for a node and whose image stands in the table is taken over: it gets a network of
its own, its volumes as directories, and its process. Data planes that have their Service's address
as their own are another matter (:mod:`node`).
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
from gatehouse.standalone.node.pod_networks import NetworkError, PodNetworks
from gatehouse.standalone.node.runner import GRACE_SECONDS, Launch, PodRunner, clear

log = structlog.get_logger("gatehouse.node")

Name = tuple[str, str]

RETRY_SECONDS = 1.0
"""Seconds until what was refused is tried again."""

ABANDONED = 2.0
"""Seconds for a process to end whose Pod went while no node ran."""


class UserPods:
    """The users' Pods of one node; :meth:`run` follows them."""

    def __init__(
        self, client: kube.Client, node: str, directory: Path, known: Images, networks: PodNetworks
    ) -> None:
        self._client = client
        self._node, self._directory = node, directory
        self._images, self._networks = known, networks
        self._woken = asyncio.Event()
        self._runners: dict[Name, tuple[PodRunner, asyncio.Task[None]]] = {}
        self._ending: dict[Name, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Look again: Pods changed."""
        self._woken.set()

    async def run(self, current: Mapping[Name, Mapping[str, Any]]) -> None:
        """Follow the Pods in ``current`` for ever."""
        if self._images and self._networks.trouble:
            log.warning("users' Pods are not run", reason=self._networks.trouble)
        await self._clear_leftovers({pod["metadata"]["uid"] for pod in current.values()})
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._round(current)
            except kube.Conflict:
                asyncio.get_running_loop().call_later(0.1, self.wake)
            except kube.ApiError as error:
                log.warning("round of Pods interrupted", error=str(error))
                self._try_later()

    def leave(self) -> None:
        """Stop watching over the Pods; their processes go on."""
        for _, task in self._runners.values():
            task.cancel()

    async def end(self) -> None:
        """End every Pod's process, and its network."""
        for name, (runner, _) in list(self._runners.items()):
            self._retire(name, runner.pod)
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
        try:
            await self._networks.close()
        except NetworkError as error:
            log.warning("bridge not removed", error=str(error))

    def _try_later(self) -> None:
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)

    async def _clear_leftovers(self, alive: set[str]) -> None:
        """End what a node before this one ran for Pods that are no more."""
        found = {path: path.read_text() for path in self._directory.glob(f"pods/*/{pods.IDENTITY}")}
        orphans = {path.parent: uid for path, uid in found.items() if uid not in alive}
        await asyncio.gather(*(clear(directory, ABANDONED) for directory in orphans))
        try:
            for uid in orphans.values():
                await self._networks.remove(uid)
            if self._images:
                # Without, this installation may share its network with one that has Pods.
                await self._networks.retain(alive)
        except NetworkError as error:
            log.warning("networks left over", error=str(error))

    async def _round(self, current: Mapping[Name, Mapping[str, Any]]) -> None:
        mine = {name: pod for name, pod in current.items() if self._takes(pod)}
        for name in self._runners.keys() - mine.keys():
            self._retire(name, self._runners[name][0].pod)
        for name, pod in mine.items():
            try:
                await self._follow(name, pod, current)
            except kube.NotFound:
                # It went meanwhile, which the informer still has to bring.
                continue

    async def _follow(
        self, name: Name, pod: Mapping[str, Any], current: Mapping[Name, Mapping[str, Any]]
    ) -> None:
        """Make one Pod's process follow the Pod."""
        if name in self._ending:
            # What ends uses the same directory; its end wakes us.
            return
        known = self._runners.get(name)
        if known is not None and known[0].pod["metadata"]["uid"] != pod["metadata"]["uid"]:
            self._retire(name, known[0].pod)
        elif pod["metadata"].get("deletionTimestamp"):
            self._retire(name, pod, remove=True)
        elif known is not None:
            await self._report(name, pod)
        elif obstacle := self._obstacle(pod):
            await self._refuse(name, pod, obstacle)
        else:
            try:
                await self._host(name, pod, current)
                await self._report(name, pod)
            except NetworkError as error:
                log.warning("no network", pod="/".join(name), error=str(error))
                await self._refuse(name, pod, pods.Condition(message=str(error)))
                self._try_later()

    def _takes(self, pod: Mapping[str, Any]) -> bool:
        """Whether a Pod is ours to run."""
        if pods.has_service_address(pod):
            return False
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return False
        node = pod.get("spec", {}).get("nodeName")
        waits = not node and not pod["metadata"].get("deletionTimestamp")
        # What is to run once is not for us, who start again whatever ends.
        waits = waits and pod["spec"].get("restartPolicy", "Always") == "Always"
        return node == self._node or (waits and images.find(self._images, pod) is not None)

    def _obstacle(self, pod: Mapping[str, Any]) -> pods.Condition | None:
        """Give why a Pod of ours cannot run, whatever is tried."""
        if images.find(self._images, pod) is None:
            named = ", ".join(c.get("image", "") for c in pod["spec"].get("containers") or ())
            message = f"not one container with an image named by --images: {named}"
            return pods.Condition(reason="ErrImageNeverPull", message=message)
        if self._networks.trouble:
            return pods.Condition(message=self._networks.trouble)
        if message := pods.unserved(pod):
            return pods.Condition(reason="CreateContainerConfigError", message=message)
        return None

    async def _refuse(self, name: Name, pod: Mapping[str, Any], obstacle: pods.Condition) -> None:
        """Say in a Pod's status why it does not run; what ran for it before ends."""
        now = datetime.now(UTC)
        directory = pods.directory(self._directory, *name)
        if (directory / pods.IDENTITY).exists():
            await clear(directory, ABANDONED)
        if pod["spec"].get("nodeName"):
            status = pods.pod_status(pod, "", obstacle, now)
        else:
            status = pods.unscheduled_status(pod, obstacle.message, now)
        if pod.get("status") != status:
            await self._client.update_status(resources.PODS, {**pod, "status": status})

    async def _host(
        self, name: Name, pod: Mapping[str, Any], current: Mapping[Name, Mapping[str, Any]]
    ) -> None:
        image = images.find(self._images, pod)
        assert image is not None
        uid = pod["metadata"]["uid"]
        address = await self._address(pod, current)
        directory = await self._make_directory(name, uid)
        await self._networks.make(uid, address)
        if not pod["spec"].get("nodeName"):
            patch = {"spec": {"nodeName": self._node}}
            pod = await self._client.patch(resources.PODS, name[1], patch, name[0])
        known = pods.environment(pod, address)
        words = [pods.expand(word, known) for word in images.words(image, _container(pod))]
        launch = Launch(tuple(words), self._networks.enter(uid), image.env)
        runner = PodRunner(self._client, pod, address, directory, launch, self.wake)
        task = asyncio.create_task(runner.run())
        task.add_done_callback(lambda done: self._on_runner_end(name, done))
        self._runners[name] = (runner, task)
        log.info("started", pod="/".join(name), address=address)

    async def _address(
        self, pod: Mapping[str, Any], current: Mapping[Name, Mapping[str, Any]]
    ) -> str:
        """Give the address that a Pod has, by its network or its status, or else a free one."""
        uid = pod["metadata"]["uid"]
        address = await self._networks.held(uid) or (pod.get("status") or {}).get("podIP", "")
        if address and self._networks.contains(address):
            return str(address)
        taken = {(other.get("status") or {}).get("podIP", "") for other in current.values()}
        taken |= {runner.address for runner, _ in self._runners.values()}
        return self._networks.choose(uid, taken)

    async def _make_directory(self, name: Name, uid: str) -> Path:
        directory = pods.directory(self._directory, *name)
        identity = directory / pods.IDENTITY
        if identity.exists() and identity.read_text() != uid:
            # Of a Pod of the same name that went while no node ran.
            await clear(directory, ABANDONED)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        identity.write_text(uid)
        return directory

    def _on_runner_end(self, name: Name, task: asyncio.Task[None]) -> None:
        """A runner ends by being cancelled; one that fails is made anew with the next round."""
        if task.cancelled() or task.exception() is None:
            return
        log.error("runner failed", pod="/".join(name), error=repr(task.exception()))
        if self._runners.get(name, (None, None))[1] is task:
            del self._runners[name]
            self._try_later()

    def _retire(self, name: Name, pod: Mapping[str, Any], *, remove: bool = False) -> None:
        """End a Pod's process, perhaps of a node before this one, without others waiting."""
        if name in self._runners:
            runner, task = self._runners.pop(name)
            task.cancel()
        else:
            directory = pods.directory(self._directory, *name)
            runner = PodRunner(self._client, pod, "", directory, Launch(()), self.wake)
        self._ending[name] = asyncio.create_task(self._finish(name, runner, _grace(pod), remove))

    async def _finish(self, name: Name, runner: PodRunner, grace: float, remove: bool) -> None:
        try:
            await runner.end(grace)
            await self._networks.remove(runner.pod["metadata"]["uid"])
            if remove:
                await self._delete(name)
        except (kube.ApiError, NetworkError) as error:
            log.warning("Pod not ended", pod="/".join(name), error=str(error))
            self._try_later()
        finally:
            del self._ending[name]
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


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = pod["spec"]["containers"][0]
    return found


def _grace(pod: Mapping[str, Any]) -> float:
    """Give the seconds that a Pod which is to end has for that."""
    asked = pod["metadata"].get("deletionGracePeriodSeconds")
    return GRACE_SECONDS if asked is None else float(asked)
