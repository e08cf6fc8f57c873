"""Inputs of the front end: kinds, index buckets, and keys of values that the controller sets."""

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
"""Resources to watch beside those of Gateway API. Their CRDs may be missing from the cluster."""

CLUSTERS: Key = ("@upstream-clusters",)


def replicas(gateway: Key) -> Key:
    """Return the key of the sorted names of a Gateway's connected data planes."""
    return ("Replicas", gateway[1], gateway[2])


def passed(moment: int) -> Key:
    """Return the key of whether a point in time (Unix seconds) has passed; None: not known yet."""
    return ("Passed", str(moment), "")


def named(host: str) -> Key:
    """Return the bucket of the UpstreamClusters with a hostname, given in lower case."""
    return ("@upstream-hosts", host)


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Decode an object of one of :data:`KINDS`. Never raises."""
    return meta.decode(VIEWS[kind], raw)


def _cluster_buckets(value: Any) -> Iterable[Key]:
    yield CLUSTERS
    yield STATUS_SUBJECTS
    if isinstance(value, upstream_clusters.UpstreamCluster):
        for host in (value.metadata.name, *value.spec.secure_serving.server_names):
            yield named(host.lower())


INDEXES: Mapping[str, tuple[Index, ...]] = {"UpstreamCluster": (_cluster_buckets,)}
"""Index buckets of each kind, for :class:`gatehouse.incremental.query.Snapshot`."""
