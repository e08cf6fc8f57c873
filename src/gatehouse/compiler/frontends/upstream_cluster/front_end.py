"""The record of this front end: its kind, and how it plugs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis import resources, upstream_clusters
from gatehouse.compiler.frontends.front_end import FrontEnd
from gatehouse.compiler.frontends.kinds import Kind, Kinds, OwnedKind
from gatehouse.compiler.frontends.upstream_cluster.allocations import (
    WRITE_INTERVAL_SECONDS,
    Allocation,
    allocation,
    rate_limit_conditions,
)
from gatehouse.compiler.frontends.upstream_cluster.attachment import (
    attached_clusters,
    gateways_of_cluster,
)
from gatehouse.compiler.frontends.upstream_cluster.credentials import dated_certificates
from gatehouse.compiler.frontends.upstream_cluster.inputs import CLUSTERS, cluster_buckets
from gatehouse.compiler.frontends.upstream_cluster.record import parse_cluster_record
from gatehouse.compiler.frontends.upstream_cluster.status import (
    cluster_status,
    merge_cluster_status,
)
from gatehouse.compiler.frontends.upstream_cluster.translate import cluster_contribution
from gatehouse.incremental.query import Key
from kube_base.types.objects import ObjectName


def rate_limit_conditions_for(
    owner: Key, allocation: Allocation
) -> Mapping[ObjectName, Mapping[str, Any]]:
    """Return the desired RateLimitConditions of an UpstreamCluster."""
    return {
        ("", name): condition
        for name, condition in rate_limit_conditions(owner[2], allocation).items()
    }


UPSTREAM_CLUSTER_FRONT_END = FrontEnd(
    Kinds(
        Kind(
            resources.UPSTREAM_CLUSTERS,
            upstream_clusters.UpstreamCluster,
            indexes=(cluster_buckets,),
            status=cluster_status,
            read_record=parse_cluster_record,
            gateways_of=gateways_of_cluster,
            certificates=dated_certificates,
            owned=(
                OwnedKind(
                    resources.RATE_LIMIT_CONDITIONS,
                    CLUSTERS,
                    allocation,
                    rate_limit_conditions_for,
                    has_status=True,
                    debounce=WRITE_INTERVAL_SECONDS,
                ),
            ),
        )
    ),
    merge_cluster_status,
    contribution=cluster_contribution,
    attached=attached_clusters,
)
