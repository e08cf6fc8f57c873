"""Load balancers outside the cluster: the loop that keeps them in step with its Services.

It sleeps, and watches one kind that a cluster need not know, until somebody asks for a load
balancer: an ExternalLoadBalancer or the ConfigMap of nlk. What the controller watches is shared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import structlog

from gatehouse.apis import resources
from gatehouse.apis.resources import Resource
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import LoadBalancer, Machines
from gatehouse.controller.load_balancers import machines
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.controller.load_balancers.metrics import figures
from gatehouse.controller.load_balancers.status_reporter import (
    StatusReporter,
    current_status,
    status_object_key,
)
from gatehouse.controller.metrics import Metric
from gatehouse.dataplane.delivery import HostReport
from gatehouse.incremental import query
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from gatehouse.kube.store import Changes
from gatehouse.transports.nginx_plus import Fleet
from gatehouse.transports.server import AgentServer

log = structlog.get_logger("gatehouse.load_balancers")

DEBOUNCE_SECONDS = 0.05
"""Seconds in which changes are gathered into one pass; hosts wait longer than that for more."""

SHARED = tuple(
    each for each in front.KINDS if each not in (resources.NODES, resources.EXTERNAL_LOAD_BALANCERS)
)
"""What the controller watches anyway."""


class LoadBalancers:
    """Everything about load balancers that one controller does."""

    def __init__(
        self, client: kube.Client, shared: Mapping[str, Informer], delivery: AgentServer
    ) -> None:
        """``shared`` are the controller's informers, among them those of :data:`SHARED`."""
        self._shared = shared
        self._own = {
            each.kind: Informer(client, each, on_changes=self.on_changes, optional=optional)
            for each, optional in (
                (resources.EXTERNAL_LOAD_BALANCERS, True),
                (resources.NODES, False),
            )
        }
        self._engine = query.Engine(query.Snapshot(front.INDEXES))
        self._asked, self._woken = asyncio.Event(), asyncio.Event()
        self._active = False
        self._fleet = Fleet(self._on_report)
        self.machines = machines.MachineFleet(delivery, self._woken.set)
        self._teller = StatusReporter(client, self._object)
        self.balancers: dict[query.Key, Balancer] = {}
        """By the key of what asks for it."""

    def on_changes(self, resource: Resource, changes: Changes) -> None:
        """Take in changed objects from an informer."""
        if not self._active:
            # Asleep, this is all that anything costs.
            if resource is resources.EXTERNAL_LOAD_BALANCERS or (
                resource is resources.CONFIG_MAPS and front.NLK_CONFIG_KEY[1:] in changes
            ):
                self._asked.set()
            return
        if resource in front.KINDS:
            now = {name: change.new for name, change in changes.items()}
            if self._put(resource.kind, now):
                self._woken.set()
        for key, balancer in self.balancers.items():
            # Somebody may have written over what was told.
            if status_object_key(key)[0] == resource.kind and status_object_key(key)[1:] in changes:
                self._teller.touch(balancer)

    def watching_nodes(self) -> bool:
        """Whether Nodes are watched: not before a load balancer is asked for."""
        return self._own[resources.NODES.kind].synced.is_set()

    def _put(self, kind: str, changes: Mapping[tuple[str, str], Mapping[str, Any] | None]) -> bool:
        """Say whether anything that matters changed."""
        return bool(
            self._engine.commit(
                {
                    (kind, *name): None if raw is None else front.decode(kind, raw)
                    for name, raw in changes.items()
                    if front.relevant(kind, *name)
                }
            )
        )

    def _object(self, key: query.Key) -> Mapping[str, Any] | None:
        informer = self._own.get(key[0]) or self._shared[key[0]]
        return informer.objects.get((key[1], key[2]))

    async def run(self) -> None:
        """Sleep until asked, then keep load balancers in step for ever.

        The caller waits with this until the shared informers have synced.
        """
        async with asyncio.TaskGroup() as group:
            balancers, nodes = self._own.values()
            group.create_task(balancers.run())
            await balancers.synced.wait()
            if self._object(front.NLK_CONFIG_KEY) is None:
                await self._asked.wait()
            log.info("load balancers are asked for")
            group.create_task(nodes.run())
            # Without having seen everything, what is missing would be taken for gone.
            await nodes.synced.wait()
            self._active = True
            for each in front.KINDS:
                informer = self._own.get(each.kind) or self._shared[each.kind]
                self._put(each.kind, informer.objects)
            group.create_task(self._teller.run())
            try:
                await self._loop()
            finally:
                await self._fleet.close()

    async def _loop(self) -> None:
        self._woken.set()
        while True:
            await self._woken.wait()
            await asyncio.sleep(DEBOUNCE_SECONDS)
            self._woken.clear()
            self._run_once()

    def _run_once(self) -> None:
        started = time.perf_counter()
        # Twice: what is ours follows from what is wanted, and what is released from what is ours.
        if self._compile():
            self._compile()
        wanted, ours = {}, list[Machines]()
        for balancer in self.balancers.values():
            balancer.holdings = None
            match balancer.compiled.balancer:
                case LoadBalancer() as asked:
                    balancer.holdings = balancer.renderer.render(asked)
                    wanted[balancer.name] = (asked.hosts, balancer.holdings)
                case Machines() as asked:
                    ours.append(asked)
        self._fleet.want(wanted)
        self.machines.want(ours)
        for balancer in self.balancers.values():
            self._take_reports(balancer)
            self._teller.touch(balancer)
        log.debug("pass", seconds=round(time.perf_counter() - started, 4))

    def _take_reports(self, balancer: Balancer) -> None:
        balancer.served = self.machines.version(balancer.name)
        for report in self.machines.reports(balancer.name):
            balancer.reports[report.host] = report

    def has_sources(self, name: str) -> Mapping[str, Any] | None:
        """Give the object that asks for the load balancer of a name."""
        key = next((key for key, each in self.balancers.items() if each.name == name), None)
        return None if key is None else self._object(key)

    def on_machine_report(self) -> None:
        """Note that a machine's agent came, went or reported."""
        self._woken.set()

    def _compile(self) -> bool:
        """Make one pass; says whether what is ours became another, so that it takes one more."""
        with self._engine.compile() as ask:
            found = {key: _guarded(ask, key) for key in ask(front.load_balancer_sources, "")}
        again = False
        for key in self.balancers.keys() - found.keys():
            del self.balancers[key]
            self._teller.forget(key)
            again |= bool(self._engine.commit({front.owned(key): None}))
        for key, compiled in found.items():
            if compiled is None:
                continue
            if key not in self.balancers:
                remembered = front.owned_upstreams(current_status(key, self._object))
                self.balancers[key] = Balancer(key, compiled, remembered)
            balancer = self.balancers[key]
            balancer.take(compiled)
            again |= bool(self._engine.commit({front.owned(key): balancer.owned}))
        return again

    def _on_report(self, name: str, report: HostReport) -> None:
        balancer = next((each for each in self.balancers.values() if each.name == name), None)
        if balancer is None:
            return
        balancer.reports[report.host] = report
        self._teller.touch(balancer)
        asked = balancer.compiled.balancer
        if asked is not None and report.empty.intersection(asked.released_upstreams):
            self._woken.set()

    def figures(self) -> Mapping[str, Metric]:
        """What can be measured from outside, for each host."""
        if not self._active:
            return {}
        return figures(self.balancers.values(), self._fleet, self.machines)


def _guarded(ask: query.Ask, key: query.Key) -> front.Compiled | None:
    """Ask; an object that nobody was prepared for must not stop the other load balancers."""
    try:
        return ask(front.compile_balancer, key)
    except Exception:
        log.exception("not compiled", kind=key[0], namespace=key[1], name=key[2])
        return None
