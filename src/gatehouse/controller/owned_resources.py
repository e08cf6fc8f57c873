"""Reconcilers of the objects that the controller writes for objects of front ends."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.kinds import OwnedKind
from gatehouse.controller.compilation import CompileResult
from gatehouse.controller.dependents import Dependents, Objects
from gatehouse.incremental.table import Table
from gatehouse.kube import client as kube
from gatehouse.kube.store import Changes
from kube_base.types.resource import Resource


class OwnedResources:
    """A reconciler for each owned kind, for example DNSEndpoints of HostedAPIServers.

    The records of the front ends' kinds declare the owned kinds.
    """

    def __init__(self, client: kube.Client, objects: Callable[[Resource], Objects]) -> None:
        """``objects``: returns the objects of a kind as last seen."""
        self._dependents: dict[OwnedKind, Dependents[Any]] = {
            owned: Dependents(
                client, owned.resource, kind.resource, objects, owned.build, owned.debounce
            )
            for kind, owned in combined.KINDS.owned
        }
        self._by_resource: dict[Resource, list[Dependents[Any]]] = defaultdict(list)
        for owned, dependents in self._dependents.items():
            self._by_resource[owned.resource].append(dependents)

    def follow(self, result: CompileResult) -> None:
        """Set the desired state from the result of a compile pass."""
        for owned, dependents in self._dependents.items():
            dependents.set_desired(result.owned.get(owned, Table()))

    def on_changes(self, resource: Resource, changes: Changes) -> None:
        """Reconcile changed dependents; ignore other kinds."""
        for dependents in self._by_resource.get(resource, ()):
            for name in changes:
                dependents.enqueue(name)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            for dependents in self._dependents.values():
                group.create_task(dependents.run())
