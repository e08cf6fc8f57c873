"""Resources of dynamic clusters, regenerated only when the name or the cluster changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from gatehouse.compiler.backends.envoy import clusters, quoting
from gatehouse.compiler.backends.envoy.capabilities import Capabilities
from gatehouse.compiler.backends.envoy.dynamic_clusters import DynamicCluster, DynamicClusterDiff
from gatehouse.compiler.backends.envoy.fragments import Fragment, Fragments
from gatehouse.compiler.backends.failures import reason
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import Unsupported


class DynamicClusterResources:
    """All dynamic clusters of a gateway."""

    def __init__(self, fragments: Fragments, capabilities: Capabilities) -> None:
        self._fragments = fragments
        self._capabilities = capabilities
        self._users: defaultdict[str, dict[str, DynamicCluster]] = defaultdict(dict)
        """Dynamic clusters by their name, by the name of the IR cluster."""

    def plan(
        self,
        diffs: Iterable[DynamicClusterDiff],
        known: Mapping[str, ir.Cluster],
        changed: Iterable[str],
    ) -> None:
        """Plan the changed dynamic clusters of ports.

        ``changed``: names of changed IR clusters.
        """
        stale: dict[str, DynamicCluster] = {}
        gone: dict[str, DynamicCluster] = {}
        for diff in diffs:
            gone |= {dynamic.name: dynamic for dynamic in diff.gone}
            stale |= {dynamic.name: dynamic for dynamic in diff.fresh}
        for name, before in gone.items():
            users = self._users[before.cluster]
            users.pop(name, None)
            if not users:
                del self._users[before.cluster]
            if name not in stale:
                self._fragments.drop(f"directed/{name}")
        for name, dynamic in stale.items():
            self._users[dynamic.cluster][name] = dynamic
        for cluster in changed:
            stale |= self._users.get(cluster, {})
        for dynamic in stale.values():
            self._fragments.put(
                f"directed/{dynamic.name}", self._fragment(dynamic, known.get(dynamic.cluster))
            )

    def _fragment(self, dynamic: DynamicCluster, cluster: ir.Cluster | None) -> Fragment:
        if cluster is None:
            return Fragment()
        try:
            name = quoting.text(dynamic.name)
            proto = clusters.cluster(cluster, self._capabilities, name)
            return Fragment((proto, clusters.endpoints(cluster, name)))
        except Exception as error:
            return Fragment((), (Unsupported(cluster.origin, reason(error)),))
