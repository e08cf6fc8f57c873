"""The node process: watches Services, workloads of data planes and Pods, and runs them."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

import gatehouse
from gatehouse.apis import resources
from gatehouse.apis.event_reasons import EventReason
from gatehouse.kube import client as kube
from gatehouse.kube.events import Recorder
from gatehouse.kube.informer import Informer
from gatehouse.standalone.node import load_balancer_ips, not_run, pods, trust
from gatehouse.standalone.node.data_plane_users import DataPlaneUsers, UserRange, UserRangeError
from gatehouse.standalone.node.runner import Launch, PodRunner
from kube_base.runtime import private_files
from kube_base.types.objects import Object, ObjectName
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.node")


WORKLOADS = (resources.DEPLOYMENTS, resources.DAEMON_SETS, resources.JOBS)

_RETRY_SECONDS = 1.0
"""Delay in seconds before a failed pass is repeated."""


class NodeOptions(msgspec.Struct, frozen=True):
    """Options of the node."""

    kubeconfig: Path
    directory: Path
    pool: str
    """CIDR of the loopback addresses of Services."""
    nginx: str
    """Path of the NGINX binary for data planes."""
    users: UserRange | None = None
    """Users of data planes. None: that of the node."""
    name: str = "local"


class StandaloneNode:
    """State of the node; each :meth:`_reconcile` pass reconciles the machine with it."""

    def __init__(self, client: kube.Client, options: NodeOptions) -> None:
        self._client = client
        self._options = options
        self._pool = ipaddress.IPv4Network(options.pool)
        self._wake_up = asyncio.Event()
        self._runners: dict[ObjectName, tuple[PodRunner, asyncio.Task[None]]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        """By the address that is free when the task is done."""
        self._users = DataPlaneUsers(options.users, options.directory, Path(options.nginx))
        self._recorder = Recorder(client, "gatehouse-node")
        self._denied_reasons: dict[str, str] = {}
        """Why workloads are not run as data planes, by UID."""
        kinds = (
            *(resources.SERVICES, resources.DEPLOYMENTS, resources.PODS),
            *(resources.GATEWAYS, resources.GATEWAY_CLASSES),
        )
        self._informers = {
            kind.kind: Informer(client, kind, on_changes=self._on_changes) for kind in kinds
        }
        # An installation may forbid its node to list these; then there are none.
        for kind in (resources.DAEMON_SETS, resources.JOBS):
            self._informers[kind.kind] = Informer(
                client, kind, on_changes=self._on_changes, optional=True, max_forbidden=1
            )

    def _on_changes(self, _: Resource, __: Mapping[ObjectName, Any]) -> None:
        self._wake_up.set()

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Reconcile until cancelled."""
        for informer in self._informers.values():
            group.create_task(informer.run())
        group.create_task(self._recorder.run())
        checking = asyncio.create_task(self._users.check())
        for informer in self._informers.values():
            await informer.synced.wait()
        await checking
        log.info("ready", pool=str(self._pool), nginx=self._options.nginx)
        while True:
            await self._wake_up.wait()
            self._wake_up.clear()
            try:
                await self._reconcile()
            except kube.Conflict:
                # The informer is stale; its next change triggers a pass, too.
                asyncio.get_running_loop().call_later(0.1, self._wake_up.set)
            except (kube.ApiError, load_balancer_ips.PoolExhausted) as error:
                log.warning("pass failed", error=str(error))
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake_up.set)

    def leave(self) -> None:
        """Stop supervising Pods; their processes keep running."""
        for _, task in self._runners.values():
            task.cancel()

    async def end(self) -> None:
        """Terminate the processes of all Pods."""
        self.leave()
        running = (runner.end() for runner, _ in self._runners.values())
        await asyncio.gather(*running, *self._ending.values())

    async def _reconcile(self) -> None:
        addresses = load_balancer_ips.assign(self._informers["Service"].objects, self._pool)
        await self._write_addresses(addresses)
        desired = self._desired_pods(addresses)
        for name in self._runners.keys() - desired.keys():
            self._retire(name)
        for name, (workload, pod, address) in desired.items():
            await self._ensure_running(name, pod, address)
            await self._report(name, workload, address)
        await self._delete_strays(set(desired))
        await self._report_not_run()

    async def _write_addresses(self, addresses: Mapping[ObjectName, str]) -> None:
        for name, service in list(self._informers["Service"].objects.items()):
            # A Service whose requested address is not available loses its address.
            address = addresses.get(name, "")
            if load_balancer_ips.ingress(service) == address:
                continue
            status = {"loadBalancer": {"ingress": [{"ip": address}] if address else []}}
            await self._client.update_status(
                resources.SERVICES, {**service, "status": {**service.get("status", {}), **status}}
            )
            log.info("address assigned", service="/".join(name), address=address)

    def _desired_pods(
        self, addresses: Mapping[ObjectName, str]
    ) -> dict[ObjectName, tuple[Mapping[str, Any], Object, str]]:
        """Return the Pods to run: one per workload whose Service has an address."""
        desired: dict[ObjectName, tuple[Mapping[str, Any], Object, str]] = {}
        holders: dict[str, ObjectName] = {}
        for (namespace, _), workload in self._data_planes():
            address = addresses.get((namespace, pods.service_of(workload)))
            if address is None or workload["spec"].get("replicas", 1) < 1:
                continue
            pod = pods.pod_for(workload, self._options.name)
            name = (namespace, pod["metadata"]["name"])
            current_holder = holders.get(address)
            if current_holder is not None:
                # A DaemonSet replaces a Deployment, or vice versa: the running Pod stays until its
                # workload is deleted.
                if name not in self._runners:
                    continue
                del desired[current_holder]
            holders[address] = name
            desired[name] = (workload, pod, address)
        return desired

    def _data_planes(self) -> Iterator[tuple[ObjectName, Mapping[str, Any]]]:
        reasons: dict[str, str] = {}
        for kind in (resources.DEPLOYMENTS, resources.DAEMON_SETS):
            for name, workload in self._informers[kind.kind].objects.items():
                metadata = workload["metadata"]
                if not pods.is_managed_object(workload) or metadata.get("deletionTimestamp"):
                    continue
                if reason := self._refusal(workload):
                    reasons[metadata["uid"]] = reason
                    if self._denied_reasons.get(metadata["uid"]) != reason:
                        workload_name = f"{kind.kind} {'/'.join(name)}"
                        log.warning("workload not run", workload=workload_name, reason=reason)
                else:
                    yield name, workload
        self._denied_reasons = reasons

    def _refusal(self, workload: Mapping[str, Any]) -> str:
        """Return why a workload must not run as a data plane; empty if it may."""

        def has_run() -> bool:
            metadata = pods.pod_for(workload, self._options.name)["metadata"]
            directory = pods.directory(
                self._options.directory, metadata["namespace"], metadata["name"]
            )
            return directory.exists()

        gateways = self._informers[resources.GATEWAYS.kind].objects
        classes = self._informers[resources.GATEWAY_CLASSES.kind].objects
        return trust.workload_refusal(workload, gateways, classes, has_run)

    async def _ensure_running(self, name: ObjectName, pod: Object, address: str) -> None:
        """Create the Pod if needed and supervise its process."""
        if address in self._ending:
            # Two processes cannot listen on one address; the exit of the other triggers a pass.
            return
        current = self._informers["Pod"].objects.get(name)
        if current is None:
            try:
                current = await self._client.create(resources.PODS, pod)
            except kube.AlreadyExists:
                current = await self._client.get(resources.PODS, name[1], namespace=name[0])
        known = self._runners.get(name)
        if current["metadata"].get("deletionTimestamp"):
            # It is being deleted: the process ends and the next pass creates another Pod.
            if known is None:
                # An earlier node may have started its process.
                directory = pods.directory(self._options.directory, *name)
                wake_up = self._wake_up.set
                runner = PodRunner(self._client, current, address, directory, Launch(()), wake_up)
                self._end(name, runner)
            else:
                self._retire(name)
            return
        if known is not None:
            runner = known[0]
            same = runner.pod["metadata"]["uid"] == current["metadata"]["uid"]
            if same and runner.address == address:
                return
            self._retire(name, keep_object=True)
            return
        directory = pods.directory(self._options.directory, *name)
        private_files.make_private_dir(directory)
        own = pods.with_identity(pod, current)
        try:
            launch = self._launch(own, directory)
        except UserRangeError as error:
            log.warning("data plane not started", pod="/".join(name), error=str(error))
            self._recorder.record(own, "Warning", EventReason.NO_FREE_USER, str(error))
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake_up.set)
            return
        runner = PodRunner(self._client, own, address, directory, launch, self._wake_up.set)
        task = asyncio.create_task(runner.run())
        task.add_done_callback(lambda done: self._on_runner_end(name, done))
        self._runners[name] = (runner, task)

    def _launch(self, pod: Mapping[str, Any], directory: Path) -> Launch:
        container = pod["spec"]["containers"][0]
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        env = {"GATEHOUSE_AGENT_NGINX": self._options.nginx}
        build = gatehouse.__version__ if words[:1] == ["gatehouse"] else ""
        user = self._users.user_of(directory)
        if not user and self._users.enabled:
            self._warn_privileged(pod)
        confine = self._users.command
        return Launch(tuple(words), build=build, env=env, user=user, confine=confine)

    def _warn_privileged(self, pod: Mapping[str, Any]) -> None:
        reason = (
            self._users.refusal
            or "started by an earlier version, or with --data-plane-users none; delete the Pod"
        )
        message = f"runs as root: {reason}"
        log.warning("data plane runs as root", pod=pod["metadata"]["name"], reason=reason)
        self._recorder.record(pod, "Warning", EventReason.DATA_PLANE_PRIVILEGED, message)

    def _on_runner_end(self, name: ObjectName, task: asyncio.Task[None]) -> None:
        """Remove a runner that failed; the next pass creates a new one."""
        if task.cancelled() or task.exception() is None:
            return
        log.error("runner failed", pod="/".join(name), error=repr(task.exception()))
        if self._runners.get(name, (None, None))[1] is task:
            del self._runners[name]
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake_up.set)

    def _retire(self, name: ObjectName, *, keep_object: bool = False) -> None:
        """Terminate a Pod's process in the background, since that may take long."""
        runner, task = self._runners.pop(name)
        task.cancel()
        self._end(name, runner, keep_object=keep_object)

    def _end(self, name: ObjectName, runner: PodRunner, *, keep_object: bool = False) -> None:
        ending = asyncio.create_task(self._finish(name, runner, keep_object))
        self._ending[runner.address] = ending

    async def _finish(self, name: ObjectName, runner: PodRunner, keep_object: bool) -> None:
        try:
            await runner.end()
            log.info("process terminated", pod="/".join(name))
            if not keep_object:
                await self._delete(name)
        except kube.ApiError as error:
            log.warning("Pod not deleted", pod="/".join(name), error=str(error))
        finally:
            self._ending.pop(runner.address, None)
            self._wake_up.set()

    async def _delete(self, name: ObjectName) -> None:
        """Delete a Pod whose process has exited."""
        try:
            await self._client.delete(resources.PODS, name[1], namespace=name[0], grace=0)
        except kube.NotFound:
            return

    async def _report(self, name: ObjectName, workload: Mapping[str, Any], address: str) -> None:
        if name not in self._runners:
            return
        runner, now = self._runners[name][0], datetime.now(UTC)
        current = self._informers["Pod"].objects.get(name)
        if current is not None:
            status = pods.pod_status(current, address, runner.state, now)
            if current.get("status") != status:
                await self._client.update_status(resources.PODS, {**current, "status": status})
        if workload["kind"] == resources.DAEMON_SETS.kind:
            resource = resources.DAEMON_SETS
            status = pods.daemon_set_status(workload, runner.state.ready)
        else:
            resource = resources.DEPLOYMENTS
            ignored = not_run.ignored_fields(workload)
            status = pods.deployment_status(workload, runner.state.ready, now, ignored)
        if workload.get("status") != status:
            await self._client.update_status(resource, {**workload, "status": status})

    async def _delete_strays(self, desired: set[ObjectName]) -> None:
        """Delete Pods of data planes that are not desired, and deleted Pods of users."""
        for name, pod in list(self._informers["Pod"].objects.items()):
            is_data_plane = pods.has_service_address(pod)
            # A Pod of a user that names this node stays until the node confirms its deletion.
            is_stray = is_data_plane or "deletionTimestamp" in pod["metadata"]
            on_this_node = pod.get("spec", {}).get("nodeName") == self._options.name
            terminating = (pod.get("status") or {}).get("podIP", "") in self._ending
            if not is_stray or not on_this_node or terminating or name in desired:
                continue
            directory = pods.directory(self._options.directory, *name)
            if is_data_plane and directory.exists():
                # Started by an earlier node process; terminate it if it still runs.
                await PodRunner(self._client, pod, "", directory, Launch(()), lambda: None).end()
            await self._delete(name)

    async def _report_not_run(self) -> None:
        """Write once to the status of each object that this node does not run why it does not."""
        now = datetime.now(UTC)
        for kind in (*WORKLOADS, resources.PODS):
            for name, obj in list(self._informers[kind.kind].objects.items()):
                message = self._denied_reasons.get(obj["metadata"]["uid"], "")
                if not message and not_run.is_foreign(obj, self._options.name):
                    message = not_run.MESSAGE
                status = not_run.not_run_status(obj, message, now) if message else None
                if status is None:
                    continue
                try:
                    await self._client.update_status(kind, {**obj, "status": status})
                except kube.ApiError as error:
                    # For example changed or deleted meanwhile; a change triggers a pass.
                    log.debug("status not written", name="/".join(name), error=str(error))


async def run_node(options: NodeOptions, stop: asyncio.Event, leave: asyncio.Event) -> None:
    """Run until ``stop``, which terminates all data planes, or ``leave``, which keeps them.

    Raises OSError if the directory cannot be used.
    """
    groups = options.users.ids if options.users else ()
    private_files.make_private_dir(options.directory, marker="pods", tree=True, groups=groups)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(private_files.locked(options.directory / "lock"))
        client = await stack.enter_async_context(kube.Client.from_kubeconfig(options.kubeconfig))
        node = StandaloneNode(client, options)
        stopped, left = asyncio.create_task(stop.wait()), asyncio.create_task(leave.wait())
        async with asyncio.TaskGroup() as group:
            live = group.create_task(_run_node(node))
            await asyncio.wait({stopped, left, live}, return_when=asyncio.FIRST_COMPLETED)
            live.cancel()
            stopped.cancel()
            left.cancel()
        if stop.is_set():
            log.info("stopping", data_planes=len(node._runners))
            await node.end()
        else:
            node.leave()


async def _run_node(node: StandaloneNode) -> None:
    async with asyncio.TaskGroup() as group:
        await node.run(group)
