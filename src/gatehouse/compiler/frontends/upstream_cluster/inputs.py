"""Index buckets of the front end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gatehouse.apis import upstream_clusters
from gatehouse.incremental.query import Key

CLUSTERS: Key = ("@upstream-clusters",)
"""Bucket of all UpstreamClusters."""


def hostname_bucket(host: str) -> Key:
    """Return the bucket of the UpstreamClusters with a hostname, given in lower case."""
    return ("@upstream-hosts", host)


def cluster_buckets(value: Any) -> Iterable[Key]:
    """Yield the index buckets of an UpstreamCluster."""
    yield CLUSTERS
    if isinstance(value, upstream_clusters.UpstreamCluster):
        for host in (value.metadata.name, *value.spec.secure_serving.server_names):
            yield hostname_bucket(host.lower())
