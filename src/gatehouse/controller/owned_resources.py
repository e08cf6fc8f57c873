"""Reconcilers of owned objects: DNSEndpoints and RateLimitConditions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.apis import resources
from gatehouse.apis.resources import Resource
from gatehouse.compiler.frontends import hosted_apiserver, upstream_cluster
from gatehouse.controller.compilation import CompileResult
from gatehouse.controller.dependents import Dependents, Name, Object, Objects
from gatehouse.incremental.query import Key
from gatehouse.kube import client as kube
from gatehouse.kube.store import Changes


class OwnedResources:
    """DNSEndpoints of external-dns for HostedAPIServers, RateLimitConditions for UpstreamClusters.

    A new kind is one entry in :attr:`_dependents` and one line in :meth:`follow`.
    """

    def __init__(self, client: kube.Client, objects: Callable[[Resource], Objects]) -> None:
        """``objects``: returns the objects of a kind as last seen."""
        self._dns = Dependents(
            client, resources.DNS_ENDPOINTS, resources.HOSTED_API_SERVERS, objects, dns_endpoint_for
        )
        self._limits = Dependents(
            client,
            resources.RATE_LIMIT_CONDITIONS,
            resources.UPSTREAM_CLUSTERS,
            objects,
            rate_limit_conditions_for,
        )
        self._dependents: dict[Resource, Dependents[Any]] = {
            resources.DNS_ENDPOINTS: self._dns,
            resources.RATE_LIMIT_CONDITIONS: self._limits,
        }

    def follow(self, result: CompileResult) -> None:
        """Set the desired state from the result of a compile pass."""
        self._dns.set_desired(result.records)
        self._limits.set_desired(result.allocations)

    def on_changes(self, resource: Resource, changes: Changes) -> None:
        """Reconcile changed dependents; ignore other kinds."""
        dependents = self._dependents.get(resource)
        if dependents is not None:
            for name in changes:
                dependents.enqueue(name)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            for dependents in self._dependents.values():
                group.create_task(dependents.run())


def dns_endpoint_for(owner: Key, records: hosted_apiserver.Records) -> Mapping[Name, Object | None]:
    """Return the desired DNSEndpoint of a HostedAPIServer, which has the same name."""
    name = (owner[1], owner[2])
    return {name: hosted_apiserver.endpoint(name, records)}


def rate_limit_conditions_for(
    owner: Key, allocation: upstream_cluster.Allocation
) -> Mapping[Name, Object | None]:
    """Return the desired RateLimitConditions of an UpstreamCluster."""
    conditions = upstream_cluster.conditions(owner[2], allocation)
    return {("", name): condition for name, condition in conditions.items()}
