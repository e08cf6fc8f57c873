"""The node process: watches Services, data planes' workloads and Pods; the machine follows."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

import gatehouse
from gatehouse.apis import resources
from gatehouse.apis.resources import Resource
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from gatehouse.standalone.node import load_balancer_ips, pods, trust
from gatehouse.standalone.node.images import Images
from gatehouse.standalone.node.pod_networks import PodNetworks
from gatehouse.standalone.node.runner import Launch, PodRunner
from gatehouse.standalone.node.service_proxy import ServiceProxy
from gatehouse.standalone.node.user_pods import UserPods

log = structlog.get_logger("gatehouse.node")

Name = tuple[str, str]

RETRY_SECONDS = 1.0
"""Seconds until a round that the API server refused is tried again."""


class Options(msgspec.Struct, frozen=True):
    """How the node runs."""

    kubeconfig: Path
    directory: Path
    pool: str
    """CIDR of the loopback addresses given to Services."""
    nginx: str
    """Path of the NGINX binary of the data planes."""
    name: str = "local"
    images: Images = {}
    """The images of users' Pods that this machine can run."""
    pod_network: str = "10.244.0.0/16"
    """Addresses of users' Pods."""


class Node:
    """Everything the node knows; rounds of :meth:`_round` make the world follow."""

    def __init__(self, client: kube.Client, options: Options) -> None:
        self._client = client
        self._options = options
        self._pool = ipaddress.IPv4Network(options.pool)
        self._woken = asyncio.Event()
        self._runners: dict[Name, tuple[PodRunner, asyncio.Task[None]]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        """By the address that is free afterwards."""
        networks = PodNetworks(options.pod_network)
        self._workloads = UserPods(
            client, options.name, options.directory, options.images, networks
        )
        self._forwarding = ServiceProxy(networks)
        self._refused: dict[str, str] = {}
        """Why workloads are not run as data planes, by uid."""
        kinds = (
            *(resources.SERVICES, resources.DEPLOYMENTS, resources.PODS),
            *(resources.GATEWAYS, resources.GATEWAY_CLASSES),
        )
        self._informers = {
            kind.kind: Informer(client, kind, on_changes=self._on_changes) for kind in kinds
        }
        # An installation may not let its node see these: it has none then.
        for kind in (resources.DAEMON_SETS, resources.ENDPOINT_SLICES):
            self._informers[kind.kind] = Informer(
                client, kind, on_changes=self._on_changes, optional=True, max_forbidden=1
            )

    def _on_changes(self, _: Resource, __: Mapping[Name, Any]) -> None:
        self._woken.set()
        self._workloads.wake()
        self._forwarding.wake()

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Follow the objects for ever."""
        for informer in self._informers.values():
            group.create_task(informer.run())
        for informer in self._informers.values():
            await informer.synced.wait()
        group.create_task(self._workloads.run(self._informers["Pod"].objects))
        if self._options.images:
            services = self._informers["Service"].objects
            slices = self._informers[resources.ENDPOINT_SLICES.kind].objects
            group.create_task(self._forwarding.run(services, slices))
        log.info("ready", pool=str(self._pool), nginx=self._options.nginx)
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._round()
            except kube.Conflict:
                # The informer is behind; what it still has to bring wakes us.
                asyncio.get_running_loop().call_later(0.1, self._woken.set)
            except (kube.ApiError, load_balancer_ips.PoolExhausted) as error:
                log.warning("round interrupted", error=str(error))
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._woken.set)

    def leave(self) -> None:
        """Stop watching over the Pods; their processes go on."""
        self._workloads.leave()
        for _, task in self._runners.values():
            task.cancel()

    async def end(self) -> None:
        """End every Pod's process."""
        self.leave()
        await self._forwarding.close()
        await self._workloads.end()
        running = (runner.end() for runner, _ in self._runners.values())
        await asyncio.gather(*running, *self._ending.values())

    async def _round(self) -> None:
        given = load_balancer_ips.assign(self._informers["Service"].objects, self._pool)
        await self._balance(given)
        wanted = self._wanted(given)
        for name in self._runners.keys() - wanted.keys():
            self._retire(name)
        for name, (workload, pod, address) in wanted.items():
            await self._host(name, pod, address)
            await self._report(name, workload, address)
        await self._remove_strays(set(wanted))

    async def _balance(self, given: Mapping[Name, str]) -> None:
        for name, service in list(self._informers["Service"].objects.items()):
            # One whose wish cannot be met loses what it had.
            address = given.get(name, "")
            if load_balancer_ips.ingress(service) == address:
                continue
            status = {"loadBalancer": {"ingress": [{"ip": address}] if address else []}}
            await self._client.update_status(
                resources.SERVICES, {**service, "status": {**service.get("status", {}), **status}}
            )
            log.info("address given", service="/".join(name), address=address)

    def _wanted(
        self, given: Mapping[Name, str]
    ) -> dict[Name, tuple[Mapping[str, Any], pods.Object, str]]:
        """Give the Pods that are to run: one per workload whose Service has its address."""
        wanted: dict[Name, tuple[Mapping[str, Any], pods.Object, str]] = {}
        holders: dict[str, Name] = {}
        for (namespace, _), workload in self._data_planes():
            address = given.get((namespace, pods.service_of(workload)))
            if address is None or workload["spec"].get("replicas", 1) < 1:
                continue
            pod = pods.pod_for(workload, self._options.name)
            name = (namespace, pod["metadata"]["name"])
            other = holders.get(address)
            if other is not None:
                # A DaemonSet takes a Deployment's place, or the other way around: whoever runs
                # stays until what asks for it is gone.
                if name not in self._runners:
                    continue
                del wanted[other]
            holders[address] = name
            wanted[name] = (workload, pod, address)
        return wanted

    def _data_planes(self) -> Iterator[tuple[Name, Mapping[str, Any]]]:
        refused: dict[str, str] = {}
        for kind in (resources.DEPLOYMENTS, resources.DAEMON_SETS):
            for name, workload in self._informers[kind.kind].objects.items():
                metadata = workload["metadata"]
                ours = (metadata.get("labels") or {}).get(pods.MANAGED_BY[0]) == pods.MANAGED_BY[1]
                if not ours or metadata.get("deletionTimestamp"):
                    continue
                if why := self._refusal(workload):
                    refused[metadata["uid"]] = why
                    if self._refused.get(metadata["uid"]) != why:
                        where = f"{kind.kind} {'/'.join(name)}"
                        log.warning("workload is not run", workload=where, reason=why)
                else:
                    yield name, workload
        self._refused = refused

    def _refusal(self, workload: Mapping[str, Any]) -> str:
        """Return why a workload must not run as a data plane; empty if it may."""

        def has_run() -> bool:
            made = pods.pod_for(workload, self._options.name)["metadata"]
            where = pods.directory(self._options.directory, made["namespace"], made["name"])
            return where.exists()

        gateways = self._informers[resources.GATEWAYS.kind].objects
        classes = self._informers[resources.GATEWAY_CLASSES.kind].objects
        return trust.refusal(workload, gateways, classes, has_run)

    async def _host(self, name: Name, pod: pods.Object, address: str) -> None:
        """See to it that the Pod exists and its process is kept running."""
        if address in self._ending:
            # Two cannot listen on one address; the end of the other wakes us.
            return
        current = self._informers["Pod"].objects.get(name)
        if current is None:
            try:
                current = await self._client.create(resources.PODS, pod)
            except kube.AlreadyExists:
                current = await self._client.get(resources.PODS, name[1], namespace=name[0])
        known = self._runners.get(name)
        if current["metadata"].get("deletionTimestamp"):
            # Somebody deletes it: the process ends, the next round makes another.
            if known is None:
                await self._delete(name)
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
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        own = pods.with_identity(pod, current)
        runner = PodRunner(
            self._client, own, address, directory, self._launch(own), self._woken.set
        )
        task = asyncio.create_task(runner.run())
        task.add_done_callback(lambda done: self._on_runner_end(name, done))
        self._runners[name] = (runner, task)

    def _launch(self, pod: Mapping[str, Any]) -> Launch:
        container = pod["spec"]["containers"][0]
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        env = {"GATEHOUSE_AGENT_NGINX": self._options.nginx}
        build = gatehouse.__version__ if words[:1] == ["gatehouse"] else ""
        return Launch(tuple(words), build=build, env=env)

    def _on_runner_end(self, name: Name, task: asyncio.Task[None]) -> None:
        """A runner ends by being cancelled; one that fails is made anew with the next round."""
        if task.cancelled() or task.exception() is None:
            return
        log.error("runner failed", pod="/".join(name), error=repr(task.exception()))
        if self._runners.get(name, (None, None))[1] is task:
            del self._runners[name]
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._woken.set)

    def _retire(self, name: Name, *, keep_object: bool = False) -> None:
        """End a Pod's process, which may take long, without others waiting for that."""
        runner, task = self._runners.pop(name)
        task.cancel()
        ending = asyncio.create_task(self._finish(name, runner, keep_object))
        self._ending[runner.address] = ending

    async def _finish(self, name: Name, runner: PodRunner, keep_object: bool) -> None:
        try:
            await runner.end()
            log.info("ended", pod="/".join(name))
            if not keep_object:
                await self._delete(name)
        except kube.ApiError as error:
            log.warning("Pod not removed", pod="/".join(name), error=str(error))
        finally:
            self._ending.pop(runner.address, None)
            self._woken.set()

    async def _delete(self, name: Name) -> None:
        """Remove a Pod whose process has ended."""
        try:
            await self._client.delete(resources.PODS, name[1], namespace=name[0], grace=0)
        except kube.NotFound:
            return

    async def _report(self, name: Name, workload: Mapping[str, Any], address: str) -> None:
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
            status = pods.deployment_status(workload, runner.state.ready, now)
        if workload.get("status") != status:
            await self._client.update_status(resource, {**workload, "status": status})

    async def _remove_strays(self, wanted: set[Name]) -> None:
        """Remove Pods of ours that nothing asks for, such as those of an earlier template."""
        for name, pod in list(self._informers["Pod"].objects.items()):
            ours = pods.has_service_address(pod)
            here = pod.get("spec", {}).get("nodeName") == self._options.name
            going = (pod.get("status") or {}).get("podIP", "") in self._ending
            if not ours or not here or going or name in wanted:
                continue
            directory = pods.directory(self._options.directory, *name)
            if directory.exists():
                # An earlier node process started it; end what still runs.
                await PodRunner(self._client, pod, "", directory, Launch(()), lambda: None).end()
            await self._delete(name)


async def run(options: Options, stop: asyncio.Event, leave: asyncio.Event) -> None:
    """Run until told to stop, which ends every data plane, or to leave, which ends none."""
    async with kube.Client.from_kubeconfig(options.kubeconfig) as client:
        node = Node(client, options)
        stopped, left = asyncio.create_task(stop.wait()), asyncio.create_task(leave.wait())
        async with asyncio.TaskGroup() as group:
            live = group.create_task(_probe_loop(node))
            await asyncio.wait({stopped, left, live}, return_when=asyncio.FIRST_COMPLETED)
            live.cancel()
            stopped.cancel()
            left.cancel()
        if stop.is_set():
            log.info("stopping", data_planes=len(node._runners))
            await node.end()
        else:
            node.leave()


async def _probe_loop(node: Node) -> None:
    async with asyncio.TaskGroup() as group:
        await node.run(group)
