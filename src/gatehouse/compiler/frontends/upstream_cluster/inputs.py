"""What the front end reads: kinds, index buckets, and what the controller tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gatehouse.apis import meta, resources, upstream_clusters
from gatehouse.compiler.frontends.gateway_api.inputs import STATUS_SUBJECTS
from gatehouse.incremental.query import Index, Key

VIEWS: Mapping[str, type[meta.Resource]] = {
    "UpstreamCluster": upstream_clusters.UpstreamCluster,
}

KINDS: tuple[resources.Resource, ...] = (resources.UPSTREAM_CLUSTERS,)
"""The resources to watch, beside those of Gateway API. A cluster need not know them."""

CLUSTERS: Key = ("@upstream-clusters",)


def replicas(gateway: Key) -> Key:
    """Give the key of the names of a Gateway's data planes that are connected, sorted."""
    return ("Replicas", gateway[1], gateway[2])


def passed(moment: int) -> Key:
    """Give the key of whether a moment (seconds since 1970) has passed; None: not known yet."""
    return ("Passed", str(moment), "")


def named(host: str) -> Key:
    """Give the bucket of the UpstreamClusters that want a host, in lower case."""
    return ("@upstream-hosts", host)


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Read an object of one of :data:`KINDS`; never raises."""
    return meta.decode(VIEWS[kind], raw)


def _cluster_buckets(value: Any) -> Iterable[Key]:
    yield CLUSTERS
    yield STATUS_SUBJECTS
    if isinstance(value, upstream_clusters.UpstreamCluster):
        for host in (value.metadata.name, *value.spec.secure_serving.server_names):
            yield named(host.lower())


INDEXES: Mapping[str, tuple[Index, ...]] = {"UpstreamCluster": (_cluster_buckets,)}
"""The index buckets of each kind, for :class:`gatehouse.query.Snapshot`."""
