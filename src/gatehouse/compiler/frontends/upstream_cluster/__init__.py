"""Front end for KubeGateway's UpstreamClusters, behind listeners of Gateways (decision 0011).

Reading order: :mod:`front_end` (the kind), :mod:`inputs` (index buckets) and :mod:`findings`
(reasons of conditions),
:mod:`attachment` (listeners that serve a cluster), :mod:`hostnames` (its hostnames and conflicts),
:mod:`record` (owned hostnames and feature gates, which outlast a restart),
:mod:`name_sets`, :mod:`rules`, :mod:`flow_control`, :mod:`feature_gates`, :mod:`auth_cache_ttls`,
:mod:`http2_streams`, :mod:`servers` and :mod:`dispatch_policies` (translation of the object's
fields; pure functions), :mod:`credentials`, :mod:`certificate_hosts` (hostnames of
certificates), :mod:`translate` (the IR of a Gateway), :mod:`status`, :mod:`shares` (division of
limits among data planes), :mod:`allocations` (objects that list the shares). :mod:`dispatch`
decides about a single request: for `gatehouse explain`, and for tests of proxies. "My rule does not
match": :mod:`name_sets`. Never here: I/O, clocks, anything that knows a proxy.
"""

from gatehouse.compiler.frontends.upstream_cluster.allocations import (
    Allocation,
    allocation,
    rate_limit_conditions,
)
from gatehouse.compiler.frontends.upstream_cluster.front_end import UPSTREAM_CLUSTER_FRONT_END
from gatehouse.compiler.frontends.upstream_cluster.inputs import CLUSTERS
from gatehouse.compiler.frontends.upstream_cluster.record import parse_cluster_record
from gatehouse.compiler.frontends.upstream_cluster.status import ClusterStatus

__all__ = [
    "CLUSTERS",
    "UPSTREAM_CLUSTER_FRONT_END",
    "Allocation",
    "ClusterStatus",
    "allocation",
    "rate_limit_conditions",
    "parse_cluster_record",
]
