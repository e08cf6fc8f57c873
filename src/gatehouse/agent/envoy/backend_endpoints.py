"""Endpoints of backends, known and healthy, from Envoy's statistics of clusters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2

from gatehouse.agent import backend_gauges
from gatehouse.agent.backend_gauges import EndpointCounts
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, ResourceSet, XdsResource
from gatehouse.runtime.prometheus import Sample

_METADATA = "gatehouse"
"""Namespace of the metadata that name the backend of a cluster, for the access log."""

_MEMBERSHIP = re.compile(
    r'^envoy_cluster_membership_(healthy|total)\{envoy_cluster_name="((?:[^"\\]|\\.)*)"\} (\d+)$',
    re.MULTILINE,
)


class _Cluster(NamedTuple):
    version: str
    statistics_name: str
    backend: str


class ClusterEndpoints:
    """Endpoints of the clusters among `resources`. Each cluster is parsed once."""

    def __init__(self, resources: Callable[[], ResourceSet]) -> None:
        self._resources = resources
        self._clusters: dict[str, _Cluster] = {}

    def samples(self, statistics: str) -> Iterable[Sample]:
        """Return the metrics of backends. `statistics`: Envoy's text of its metrics.

        Parses new clusters, which takes time if there are thousands: call it in a thread.
        """
        self._update()
        numbers = {
            (kind, name): int(value) for kind, name, value in _MEMBERSHIP.findall(statistics)
        }
        backends: dict[str, EndpointCounts] = {}
        for cluster in self._clusters.values():
            if not cluster.backend:
                continue
            known, healthy = backends.get(cluster.backend, (0, 0))
            # Clusters of one backend with different settings have the same endpoints.
            backends[cluster.backend] = EndpointCounts(
                max(known, numbers.get(("total", cluster.statistics_name), 0)),
                max(healthy or 0, numbers.get(("healthy", cluster.statistics_name), 0)),
            )
        return list(backend_gauges.backend_samples(backends))

    def _update(self) -> None:
        resources = self._resources().by_type.get(CLUSTER_TYPE_URL, {})
        clusters: dict[str, _Cluster] = {}
        for name, resource in resources.items():
            known = self._clusters.get(name)
            if known is None or known.version != resource.version:
                known = _parse(resource)
            clusters[name] = known
        self._clusters = clusters


def _parse(resource: XdsResource) -> _Cluster:
    proto = cluster_pb2.Cluster.FromString(resource.body)
    fields = proto.metadata.filter_metadata
    backend = str(fields[_METADATA]["backend"]) if "backend" in fields.get(_METADATA, {}) else ""
    return _Cluster(resource.version, proto.alt_stat_name or proto.name, backend)
