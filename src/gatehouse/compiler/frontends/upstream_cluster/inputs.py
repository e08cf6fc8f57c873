"""Inputs of the front end: index buckets, and keys of values that the controller sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gatehouse.apis import upstream_clusters
from gatehouse.incremental.query import Key

CLUSTERS: Key = ("@upstream-clusters",)
"""Bucket of all UpstreamClusters."""


def replicas(gateway: Key) -> Key:
    """Return the key of the sorted names of a Gateway's connected data planes."""
    return ("Replicas", gateway[1], gateway[2])


def passed(moment: int) -> Key:
    """Return the key of whether a point in time (Unix seconds) has passed; None: not known yet."""
    return ("Passed", str(moment), "")


def named(host: str) -> Key:
    """Return the bucket of the UpstreamClusters with a hostname, given in lower case."""
    return ("@upstream-hosts", host)


def buckets(value: Any) -> Iterable[Key]:
    """Yield the index buckets of an UpstreamCluster."""
    yield CLUSTERS
    if isinstance(value, upstream_clusters.UpstreamCluster):
        for host in (value.metadata.name, *value.spec.secure_serving.server_names):
            yield named(host.lower())
