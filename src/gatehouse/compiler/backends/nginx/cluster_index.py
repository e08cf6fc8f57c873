"""Index of the clusters of a gateway, and of the fragments that a change makes stale."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gatehouse.compiler.backends.nginx import tls_connectors
from gatehouse.compiler.backends.nginx.fragments import ChangeTracker, cluster_key, properties_key
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import UpstreamSettings

ClusterProperties = tuple[bool, str, ir.BackendTls | None, UpstreamSettings]
"""Properties of a cluster that its users depend on: whether it has endpoints, protocol, TLS,
settings."""


class Clusters:
    """The clusters of the last pass."""

    def __init__(self) -> None:
        self.by_name: dict[str, ir.Cluster] = {}
        self.endpoints = 0
        """Number of endpoints of all clusters."""
        self._tracker: ChangeTracker[ir.Cluster] = ChangeTracker()
        self._connected: dict[str, ir.Cluster] = {}

    @property
    def connected(self) -> tuple[ir.Cluster, ...]:
        """Clusters that are reached through a TLS connector, sorted by name."""
        return tuple(cluster for _, cluster in sorted(self._connected.items()))

    def follow(self, clusters: Collection[ir.Cluster]) -> tuple[set[str], set[str]]:
        """Update the index. Return the names of changed clusters and the stale dependency keys."""
        fresh, gone = self._tracker.follow(clusters)
        names = {cluster.name for cluster in (*fresh, *gone)}
        before = {name: _properties(self.by_name.get(name)) for name in names}
        for cluster in gone:
            self.by_name.pop(cluster.name, None)
            self._connected.pop(cluster.name, None)
            self.endpoints -= len(cluster.endpoints)
        for cluster in fresh:
            self.by_name[cluster.name] = cluster
            self.endpoints += len(cluster.endpoints)
            if tls_connectors.connected(cluster):
                self._connected[cluster.name] = cluster
        changed = {name for name in names if _properties(self.by_name.get(name)) != before[name]}
        return names, {*map(cluster_key, names), *map(properties_key, changed)}

    def found(self, names: Iterable[str]) -> list[ir.Cluster]:
        """Return the existing clusters of these names."""
        return [self.by_name[name] for name in names if name in self.by_name]


def _properties(cluster: ir.Cluster | None) -> ClusterProperties | None:
    if cluster is None:
        return None
    return bool(cluster.endpoints), cluster.protocol, cluster.tls, cluster.settings
