"""Users' Pods as processes of this machine, if their images are known.

A pending Pod with a known image is scheduled to this node. It gets a network namespace, volumes as
directories, and a process. Data planes, which use the address of their Service, are handled by
:mod:`node`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from fakes.workloads import images
from fakes.workloads.images import Images
from fakes.workloads.pod_networks import NetworkError, PodNetworks
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone.node import pods
from gatehouse.standalone.node.runner import GRACE_SECONDS, Launch, PodRunner, clear

log = structlog.get_logger("gatehouse.node")

Name = tuple[str, str]

RETRY_SECONDS = 1.0
"""Delay in seconds before a failed pass is repeated."""

ORPHAN_GRACE_SECONDS = 2.0
"""Grace period in seconds of processes whose Pod was deleted while no node ran."""


class UserPods:
    """Runs the users' Pods of one node."""

    def __init__(
        self,
        client: kube.Client,
        node: str,
        directory: Path,
        known_images: Images,
        networks: PodNetworks,
    ) -> None:
        self._client = client
        self._node, self._directory = node, directory
        self._images, self._networks = known_images, networks
        self._wake_up = asyncio.Event()
        self._runners: dict[Name, tuple[PodRunner, asyncio.Task[None]]] = {}
        self._ending: dict[Name, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Reconcile soon. Call this when Pods changed."""
        self._wake_up.set()

    async def run(self, current: Mapping[Name, Mapping[str, Any]]) -> None:
        """Reconcile with the Pods in ``current`` until cancelled."""
        if self._images and self._networks.unavailable_reason:
            log.warning("Pods of users not supported", reason=self._networks.unavailable_reason)
        await self._clear_leftovers({pod["metadata"]["uid"] for pod in current.values()})
        while True:
            await self._wake_up.wait()
            self._wake_up.clear()
            try:
                await self._reconcile(current)
            except kube.Conflict:
                asyncio.get_running_loop().call_later(0.1, self.wake)
            except kube.ApiError as error:
                log.warning("pass over Pods failed", error=str(error))
                self._retry_later()

    def leave(self) -> None:
        """Stop supervising Pods; their processes keep running."""
        for _, task in self._runners.values():
            task.cancel()

    async def end(self) -> None:
        """Terminate the processes of all Pods and delete their networks."""
        for name, (runner, _) in list(self._runners.items()):
            self._retire(name, runner.pod)
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
        try:
            await self._networks.close()
        except NetworkError as error:
            log.warning("bridge not deleted", error=str(error))

    def _retry_later(self) -> None:
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)

    async def _clear_leftovers(self, alive: set[str]) -> None:
        """Terminate processes of an earlier node whose Pods do not exist."""
        found = {path: path.read_text() for path in self._directory.glob(f"pods/*/{pods.IDENTITY}")}
        orphans = {path.parent: uid for path, uid in found.items() if uid not in alive}
        await asyncio.gather(*(clear(directory, ORPHAN_GRACE_SECONDS) for directory in orphans))
        try:
            for uid in orphans.values():
                await self._networks.remove(uid)
            if self._images:
                # Without images another installation with Pods may share this network.
                await self._networks.retain(alive)
        except NetworkError as error:
            log.warning("networks not deleted", error=str(error))

    async def _reconcile(self, current: Mapping[Name, Mapping[str, Any]]) -> None:
        assigned = {name: pod for name, pod in current.items() if self._is_assigned(pod)}
        for name in self._runners.keys() - assigned.keys():
            self._retire(name, self._runners[name][0].pod)
        for name, pod in assigned.items():
            try:
                await self._reconcile_pod(name, pod, current)
            except kube.NotFound:
                # Deleted meanwhile; the informer will report it.
                continue

    async def _reconcile_pod(
        self, name: Name, pod: Mapping[str, Any], current: Mapping[Name, Mapping[str, Any]]
    ) -> None:
        """Reconcile the process of one Pod."""
        if name in self._ending:
            # The terminating process uses the same directory; its exit triggers a pass.
            return
        known = self._runners.get(name)
        if known is not None and known[0].pod["metadata"]["uid"] != pod["metadata"]["uid"]:
            self._retire(name, known[0].pod)
        elif pod["metadata"].get("deletionTimestamp"):
            self._retire(name, pod, remove=True)
        elif known is not None:
            await self._report(name, pod)
        elif blocked := self._blocked_condition(pod):
            await self._report_blocked(name, pod, blocked)
        else:
            try:
                await self._start(name, pod, current)
                await self._report(name, pod)
            except NetworkError as error:
                log.warning("network not created", pod="/".join(name), error=str(error))
                await self._report_blocked(name, pod, pods.Condition(message=str(error)))
                self._retry_later()

    def _is_assigned(self, pod: Mapping[str, Any]) -> bool:
        """Return whether this node runs a Pod."""
        if pods.has_service_address(pod):
            return False
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return False
        node = pod.get("spec", {}).get("nodeName")
        is_pending = not node and not pod["metadata"].get("deletionTimestamp")
        # Only restartPolicy Always is supported: exited processes are always restarted.
        is_pending = is_pending and pod["spec"].get("restartPolicy", "Always") == "Always"
        return node == self._node or (is_pending and images.find(self._images, pod) is not None)

    def _blocked_condition(self, pod: Mapping[str, Any]) -> pods.Condition | None:
        """Return why a Pod of this node cannot run permanently; None if it can."""
        if images.find(self._images, pod) is None:
            image_names = ", ".join(c.get("image", "") for c in pod["spec"].get("containers") or ())
            message = (
                f"must have exactly one container with an image listed in --images: {image_names}"
            )
            return pods.Condition(reason="ErrImageNeverPull", message=message)
        if self._networks.unavailable_reason:
            return pods.Condition(message=self._networks.unavailable_reason)
        if message := pods.unsupported_environment(pod):
            return pods.Condition(reason="CreateContainerConfigError", message=message)
        return None

    async def _report_blocked(
        self, name: Name, pod: Mapping[str, Any], blocked: pods.Condition
    ) -> None:
        """Write to a Pod's status why it does not run, and terminate its earlier process."""
        now = datetime.now(UTC)
        directory = pods.directory(self._directory, *name)
        if (directory / pods.IDENTITY).exists():
            await clear(directory, ORPHAN_GRACE_SECONDS)
        if pod["spec"].get("nodeName"):
            status = pods.pod_status(pod, "", blocked, now)
        else:
            status = pods.unscheduled_status(pod, blocked.message, now)
        if pod.get("status") != status:
            await self._client.update_status(resources.PODS, {**pod, "status": status})

    async def _start(
        self, name: Name, pod: Mapping[str, Any], current: Mapping[Name, Mapping[str, Any]]
    ) -> None:
        image = images.find(self._images, pod)
        assert image is not None
        uid = pod["metadata"]["uid"]
        address = await self._address(pod, current)
        directory = await self._make_directory(name, uid)
        await self._networks.create(uid, address)
        if not pod["spec"].get("nodeName"):
            patch = {"spec": {"nodeName": self._node}}
            pod = await self._client.patch(resources.PODS, name[1], patch, name[0])
        variables = pods.environment(pod, address)
        arguments = [
            pods.expand(argument, variables)
            for argument in images.command_line(image, _container(pod))
        ]
        launch = Launch(tuple(arguments), self._networks.enter(uid), image.env)
        runner = PodRunner(self._client, pod, address, directory, launch, self.wake)
        task = asyncio.create_task(runner.run())
        task.add_done_callback(lambda done: self._on_runner_end(name, done))
        self._runners[name] = (runner, task)
        log.info("Pod started", pod="/".join(name), address=address)

    async def _address(
        self, pod: Mapping[str, Any], current: Mapping[Name, Mapping[str, Any]]
    ) -> str:
        """Return the address of a Pod from its network or its status, else a free one."""
        uid = pod["metadata"]["uid"]
        address = await self._networks.current_address(uid) or (pod.get("status") or {}).get(
            "podIP", ""
        )
        if address and self._networks.contains(address):
            return str(address)
        taken = {(other.get("status") or {}).get("podIP", "") for other in current.values()}
        taken |= {runner.address for runner, _ in self._runners.values()}
        return self._networks.choose(uid, taken)

    async def _make_directory(self, name: Name, uid: str) -> Path:
        directory = pods.directory(self._directory, *name)
        identity = directory / pods.IDENTITY
        if identity.exists() and identity.read_text() != uid:
            # Of a Pod of the same name that was deleted while no node ran.
            await clear(directory, ORPHAN_GRACE_SECONDS)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        identity.write_text(uid)
        return directory

    def _on_runner_end(self, name: Name, task: asyncio.Task[None]) -> None:
        """Remove a runner that failed; the next pass creates a new one."""
        if task.cancelled() or task.exception() is None:
            return
        log.error("runner failed", pod="/".join(name), error=repr(task.exception()))
        if self._runners.get(name, (None, None))[1] is task:
            del self._runners[name]
            self._retry_later()

    def _retire(self, name: Name, pod: Mapping[str, Any], *, remove: bool = False) -> None:
        """Terminate a Pod's process, also of an earlier node, in the background."""
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
            log.warning("Pod not terminated", pod="/".join(name), error=str(error))
            self._retry_later()
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
    container: Mapping[str, Any] = pod["spec"]["containers"][0]
    return container


def _grace(pod: Mapping[str, Any]) -> float:
    """Return the grace period of a Pod in seconds."""
    seconds = pod["metadata"].get("deletionGracePeriodSeconds")
    return GRACE_SECONDS if seconds is None else float(seconds)
