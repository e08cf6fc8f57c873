"""What is kept for objects of our own kinds: names in the DNS, and who has how much of a limit."""

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

    What is kept is one line in :attr:`_kept` and one in :meth:`follow`.
    """

    def __init__(self, client: kube.Client, seen: Callable[[Resource], Objects]) -> None:
        """``seen``: the objects of a kind as last seen."""
        self._dns = Dependents(
            client, resources.DNS_ENDPOINTS, resources.HOSTED_API_SERVERS, seen, dns_endpoint_for
        )
        self._limits = Dependents(
            client,
            resources.RATE_LIMIT_CONDITIONS,
            resources.UPSTREAM_CLUSTERS,
            seen,
            rate_limit_conditions_for,
        )
        self._kept: dict[Resource, Dependents[Any]] = {
            resources.DNS_ENDPOINTS: self._dns,
            resources.RATE_LIMIT_CONDITIONS: self._limits,
        }

    def follow(self, found: CompileResult) -> None:
        """Take in what a pass found."""
        self._dns.set_desired(found.records)
        self._limits.set_desired(found.allocations)

    def on_changes(self, resource: Resource, changes: Changes) -> None:
        """Look again at what somebody may have changed."""
        kept = self._kept.get(resource)
        if kept is not None:
            for name in changes:
                kept.enqueue(name)

    async def run(self) -> None:
        """Write for ever."""
        async with asyncio.TaskGroup() as group:
            for each in self._kept.values():
                group.create_task(each.run())


def dns_endpoint_for(owner: Key, wanted: hosted_apiserver.Records) -> Mapping[Name, Object | None]:
    """Give the DNSEndpoint of a HostedAPIServer; it has its name."""
    name = (owner[1], owner[2])
    return {name: hosted_apiserver.endpoint(name, wanted)}


def rate_limit_conditions_for(
    owner: Key, wanted: upstream_cluster.Allocation
) -> Mapping[Name, Object | None]:
    """Give the RateLimitConditions of an UpstreamCluster."""
    found = upstream_cluster.conditions(owner[2], wanted)
    return {("", name): made for name, made in found.items()}
