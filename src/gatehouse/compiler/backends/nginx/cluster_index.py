"""What is known of a gateway's clusters, and which of them a change concerns."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gatehouse.compiler.backends.nginx import tls_connectors
from gatehouse.compiler.backends.nginx.fragments import ChangeTracker, look, whole
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import UpstreamSettings

Look = tuple[bool, str, ir.BackendTls | None, UpstreamSettings]
"""What of a cluster shows where it is used: whether it has endpoints, how it is spoken to."""


class Clusters:
    """The clusters of the last pass."""

    def __init__(self) -> None:
        self.by_name: dict[str, ir.Cluster] = {}
        self.endpoints = 0
        """How many all of them have."""
        self._followed: ChangeTracker[ir.Cluster] = ChangeTracker()
        self._connected: dict[str, ir.Cluster] = {}

    @property
    def connected(self) -> tuple[ir.Cluster, ...]:
        """Those that are reached by way of a connector."""
        return tuple(found for _, found in sorted(self._connected.items()))

    def follow(self, wanted: Collection[ir.Cluster]) -> tuple[set[str], set[str]]:
        """Give the names of clusters that are others than before, and what is stale by that."""
        fresh, gone = self._followed.follow(wanted)
        names = {cluster.name for cluster in (*fresh, *gone)}
        before = {name: _look(self.by_name.get(name)) for name in names}
        for cluster in gone:
            self.by_name.pop(cluster.name, None)
            self._connected.pop(cluster.name, None)
            self.endpoints -= len(cluster.endpoints)
        for cluster in fresh:
            self.by_name[cluster.name] = cluster
            self.endpoints += len(cluster.endpoints)
            if tls_connectors.connected(cluster):
                self._connected[cluster.name] = cluster
        moved = {name for name in names if _look(self.by_name.get(name)) != before[name]}
        return names, {*map(whole, names), *map(look, moved)}

    def found(self, names: Iterable[str]) -> list[ir.Cluster]:
        """Give those of the clusters that there are."""
        return [self.by_name[name] for name in names if name in self.by_name]


def _look(cluster: ir.Cluster | None) -> Look | None:
    if cluster is None:
        return None
    return bool(cluster.endpoints), cluster.protocol, cluster.tls, cluster.settings
