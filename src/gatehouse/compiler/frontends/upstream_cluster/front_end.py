"""The record of this front end: its kind, and how it plugs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis import resources, upstream_clusters
from gatehouse.compiler.frontends.front_end import FrontEnd
from gatehouse.compiler.frontends.kinds import Kind, Kinds, Name, OwnedKind
from gatehouse.compiler.frontends.upstream_cluster.allocations import (
    Allocation,
    allocation,
    conditions,
)
from gatehouse.compiler.frontends.upstream_cluster.attachment import attached, gateways_of
from gatehouse.compiler.frontends.upstream_cluster.credentials import certificate_times
from gatehouse.compiler.frontends.upstream_cluster.inputs import CLUSTERS, buckets
from gatehouse.compiler.frontends.upstream_cluster.status import merge_status, status
from gatehouse.compiler.frontends.upstream_cluster.translate import contribution
from gatehouse.incremental.query import Key


def rate_limit_conditions_for(
    owner: Key, allocation: Allocation
) -> Mapping[Name, Mapping[str, Any]]:
    """Return the desired RateLimitConditions of an UpstreamCluster."""
    return {("", name): each for name, each in conditions(owner[2], allocation).items()}


FRONT_END = FrontEnd(
    Kinds(
        Kind(
            resources.UPSTREAM_CLUSTERS,
            upstream_clusters.UpstreamCluster,
            indexes=(buckets,),
            status=status,
            gateways_of=gateways_of,
            deadlines=certificate_times,
            owned=(
                OwnedKind(
                    resources.RATE_LIMIT_CONDITIONS,
                    CLUSTERS,
                    allocation,
                    rate_limit_conditions_for,
                    has_status=True,
                ),
            ),
        )
    ),
    merge_status,
    contribution=contribution,
    attached=attached,
)
