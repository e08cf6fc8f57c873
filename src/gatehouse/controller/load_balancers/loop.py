"""Main loop of load balancers outside the cluster, which synchronizes them with Services.

It is idle and watches one optional kind until a load balancer is requested by an
ExternalLoadBalancer or by a ConfigMap of nlk. It shares the controller's informers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from gatehouse.apis import resources
from gatehouse.apis.external_load_balancers import NLK_NAMESPACE
from gatehouse.compiler.backends import nginx_plus
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import LoadBalancer, Machines
from gatehouse.controller.alarm import Alarm
from gatehouse.controller.deadlines import Deadlines
from gatehouse.controller.load_balancers import machines
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.controller.load_balancers.metrics import host_metrics
from gatehouse.controller.load_balancers.status_reporter import (
    StatusReporter,
    current_status,
    status_object_key,
)
from gatehouse.controller.metrics import Metric
from gatehouse.dataplane.delivery import HostReport
from gatehouse.incremental import query
from gatehouse.incremental.table import Table
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from gatehouse.kube.store import Changes
from gatehouse.transports.nginx_plus import PlusFleet
from gatehouse.transports.server import AgentServer
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.load_balancers")

_DEBOUNCE_SECONDS = 0.05
"""Debounce of changes in seconds before a compile pass. The debounce of hosts is longer."""

SHARED_KINDS = tuple(kind for kind in front.LOAD_BALANCER_KINDS if kind in combined.KINDS.resources)
"""Kinds watched by the controller's own informers."""


class LoadBalancers:
    """All load balancers of a controller."""

    def __init__(
        self,
        client: kube.Client,
        shared: Mapping[str, Informer],
        delivery: AgentServer,
        nlk_namespace: str = NLK_NAMESPACE,
    ) -> None:
        """``shared``: the controller's informers by kind, which include :data:`SHARED_KINDS`.

        ``nlk_namespace``: namespace of the ConfigMaps of nlk.
        """
        self._shared, self._nlk_namespace = shared, nlk_namespace
        self._own = {
            kind.resource.kind: Informer(
                client, kind.resource, on_changes=self.on_changes, optional=not kind.required
            )
            for kind in front.LOAD_BALANCER_FRONT_END.kinds
            if kind.resource not in SHARED_KINDS
        }
        self._engine = query.Engine(query.Snapshot(front.LOAD_BALANCER_INDEXES))
        self._requested, self._wake_up = asyncio.Event(), asyncio.Event()
        self._alarm = Alarm(self._wake_up)
        self._deadlines = Deadlines(lambda key, value: bool(self._engine.commit({key: value})))
        self._active = False
        self._fleet = PlusFleet(self._on_report)
        self.machines = machines.MachineFleet(delivery, self._wake_up.set)
        self._status_reporter = StatusReporter(client, self._object)
        self.balancers: dict[query.Key, Balancer] = {}
        """By the key of the object that requests it."""

    def on_changes(self, resource: Resource, changes: Changes) -> None:
        """Store changed objects from an informer."""
        if not self._active:
            # While idle, this is the only cost of a change.
            if resource is resources.EXTERNAL_LOAD_BALANCERS or (
                resource is resources.CONFIG_MAPS and self._any_nlk_config(changes)
            ):
                self._requested.set()
            return
        if resource in front.LOAD_BALANCER_KINDS:
            objects = {name: change.new for name, change in changes.items()}
            if self._put(resource.kind, objects):
                self._wake_up.set()
        for key, balancer in self.balancers.items():
            # Another writer may have overwritten the status.
            if status_object_key(key)[0] == resource.kind and status_object_key(key)[1:] in changes:
                self._status_reporter.enqueue(balancer)

    def _put(self, kind: str, changes: Mapping[tuple[str, str], Mapping[str, Any] | None]) -> bool:
        """Store changed objects. Return whether anything that matters changed."""
        return bool(
            self._engine.commit(
                {
                    (kind, *name): None if raw is None else front.decode_balancer_object(kind, raw)
                    for name, raw in changes.items()
                    if front.relevant(kind, *name, self._nlk_namespace)
                }
            )
        )

    def _object(self, key: query.Key) -> Mapping[str, Any] | None:
        informer = self._own.get(key[0]) or self._shared[key[0]]
        return informer.objects.get((key[1], key[2]))

    async def run(self) -> None:
        """Wait until a load balancer is requested, then synchronize until cancelled.

        Start it only after the shared informers have synchronized.
        """
        async with asyncio.TaskGroup() as group:
            balancers = self._own[resources.EXTERNAL_LOAD_BALANCERS.kind]
            nodes = self._own[resources.NODES.kind]
            group.create_task(balancers.run())
            await balancers.synced.wait()
            if not self._any_nlk_config(self._shared[resources.CONFIG_MAPS.kind].objects):
                await self._requested.wait()
            log.info("load balancer requested, watching Nodes")
            group.create_task(nodes.run())
            # Before this, objects not seen yet would be treated as deleted.
            await nodes.synced.wait()
            self._active = True
            for kind in front.LOAD_BALANCER_KINDS:
                informer = self._own.get(kind.kind) or self._shared[kind.kind]
                self._put(kind.kind, informer.objects)
            group.create_task(self._status_reporter.run())
            try:
                await self._loop()
            finally:
                await self._fleet.close()

    async def _loop(self) -> None:
        self._wake_up.set()
        while True:
            self._alarm.set(self._deadlines.next_wakeups())
            await self._wake_up.wait()
            await asyncio.sleep(_DEBOUNCE_SECONDS)
            self._wake_up.clear()
            self._run_once()

    def _run_once(self) -> None:
        started = time.perf_counter()
        # Twice: owned upstreams follow from desired ones, and released ones from owned ones. And
        # findings about certificates follow from deadlines that are found in them.
        if self._compile():
            self._compile()
        desired, machines_of_balancers = {}, list[Machines]()
        for balancer in self.balancers.values():
            balancer.desired = None
            match balancer.compiled.balancer:
                case LoadBalancer() as compiled:
                    balancer.generated = nginx_plus.generate_upstreams(compiled, balancer.generated)
                    balancer.desired = balancer.generated.desired
                    desired[balancer.name] = (compiled.hosts, balancer.desired)
                case Machines() as compiled:
                    machines_of_balancers.append(compiled)
        self._fleet.want(desired)
        self.machines.set_desired(machines_of_balancers)
        for balancer in self.balancers.values():
            self._take_reports(balancer)
            self._status_reporter.enqueue(balancer)
        log.debug("load balancer pass finished", seconds=round(time.perf_counter() - started, 4))

    def _take_reports(self, balancer: Balancer) -> None:
        balancer.served = self.machines.version(balancer.name)
        for report in self.machines.reports(balancer.name):
            balancer.reports[report.host] = report

    def source_object(self, name: str) -> Mapping[str, Any] | None:
        """Return the object that requests the load balancer with this name."""
        key = next((key for key, balancer in self.balancers.items() if balancer.name == name), None)
        return None if key is None else self._object(key)

    def on_machine_report(self) -> None:
        """Run a pass soon. Call this when a machine's agent connected, disconnected or reported."""
        self._wake_up.set()

    def _compile(self) -> bool:
        """Run one compile pass. Return whether inputs changed, which needs another one."""
        with self._engine.compile() as ask:
            results = {key: _guarded(ask, key) for key in ask(front.load_balancer_sources)}
            compiled_keys = [key for key, compiled in results.items() if compiled is not None]
            deadlines = Table((key, ask(front.balancer_deadlines, key)) for key in compiled_keys)
        again = self._deadlines.update(deadlines)
        for key in self.balancers.keys() - results.keys():
            del self.balancers[key]
            self._status_reporter.forget(key)
            again |= bool(self._engine.commit({front.owned(key): None}))
        for key, compiled in results.items():
            if compiled is None:
                continue
            if key not in self.balancers:
                owned = front.owned_upstreams(current_status(key, self._object))
                self.balancers[key] = Balancer(key, compiled, owned)
            balancer = self.balancers[key]
            balancer.update(compiled)
            again |= bool(self._engine.commit({front.owned(key): balancer.owned}))
        return again

    def _on_report(self, name: str, report: HostReport) -> None:
        balancer = next(
            (candidate for candidate in self.balancers.values() if candidate.name == name), None
        )
        if balancer is None:
            return
        balancer.reports[report.host] = report
        self._status_reporter.enqueue(balancer)
        compiled = balancer.compiled.balancer
        if compiled is not None and report.empty.intersection(compiled.released_upstreams):
            self._wake_up.set()

    def _any_nlk_config(self, names: Iterable[tuple[str, str]]) -> bool:
        kind, namespace = resources.CONFIG_MAPS.kind, self._nlk_namespace
        return any(front.relevant(kind, *name, namespace) for name in names)

    def metrics(self) -> Mapping[str, Metric]:
        """Return the metrics of each host; none while idle."""
        if not self._active:
            return {}
        return host_metrics(self.balancers.values(), self._fleet, self.machines)


def _guarded(ask: query.Ask, key: query.Key) -> front.CompiledLoadBalancer | None:
    """Compile one load balancer. None if that raises, so that others are not affected."""
    try:
        return ask(front.compile_balancer, key)
    except Exception:
        log.exception("compilation failed", kind=key[0], namespace=key[1], name=key[2])
        return None
