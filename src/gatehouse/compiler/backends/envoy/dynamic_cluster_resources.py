"""The clusters that connections find by name, made again only when name or cluster changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from gatehouse.compiler.backends.envoy import clusters, quoting
from gatehouse.compiler.backends.envoy.capabilities import Capabilities
from gatehouse.compiler.backends.envoy.dynamic_clusters import DynamicCluster, DynamicClusterDiff
from gatehouse.compiler.backends.envoy.fragments import Fragment, Fragments
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.ir import http as ir


class Directions:
    """All of a gateway."""

    def __init__(self, fragments: Fragments, capabilities: Capabilities) -> None:
        self._fragments = fragments
        self._capabilities = capabilities
        self._users: defaultdict[str, dict[str, DynamicCluster]] = defaultdict(dict)
        """By the cluster of the IR: by Envoy's."""

    def plan(
        self,
        moved: Iterable[DynamicClusterDiff],
        known: Mapping[str, ir.Cluster],
        changed: Iterable[str],
    ) -> None:
        """Plan what ports direct otherwise than before.

        ``changed``: clusters of the IR that are others than before.
        """
        stale: dict[str, DynamicCluster] = {}
        gone: dict[str, DynamicCluster] = {}
        for each in moved:
            gone |= {found.name: found for found in each.gone}
            stale |= {found.name: found for found in each.fresh}
        for name, before in gone.items():
            users = self._users[before.cluster]
            users.pop(name, None)
            if not users:
                del self._users[before.cluster]
            if name not in stale:
                self._fragments.drop(f"directed/{name}")
        for name, found in stale.items():
            self._users[found.cluster][name] = found
        for cluster in changed:
            stale |= self._users.get(cluster, {})
        for found in stale.values():
            self._fragments.put(
                f"directed/{found.name}", self._fragment(found, known.get(found.cluster))
            )

    def _fragment(self, found: DynamicCluster, cluster: ir.Cluster | None) -> Fragment:
        if cluster is None:
            return Fragment()
        try:
            name = quoting.text(found.name)
            made = clusters.cluster(cluster, self._capabilities, name)
            return Fragment((made, clusters.endpoints(cluster, name)))
        except InvalidValueError as error:
            return Fragment((), ((f"cluster/{cluster.name}", str(error)),))
