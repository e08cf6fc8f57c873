"""Front end for KubeGateway's UpstreamClusters, behind listeners of Gateways (decision 0011).

Reading order: :mod:`front_end` (the kind), :mod:`inputs` (index buckets) and :mod:`findings`
(reasons of conditions),
:mod:`attachment` (listeners that serve a cluster), :mod:`hostnames` (its hostnames and conflicts),
:mod:`name_sets`, :mod:`rules`, :mod:`flow_control`, :mod:`feature_gates`, :mod:`auth_cache_ttls`,
:mod:`http2_streams`, :mod:`servers` and :mod:`dispatch_policies` (translation of the object's
fields; pure functions), :mod:`credentials`, :mod:`certificate_validity` (validity by time and
hostname), :mod:`translate` (the IR of a Gateway), :mod:`status`, :mod:`allocations` (shares of
limits across data planes). :mod:`dispatch` decides about a single request: for `gatehouse explain`,
and for tests of proxies. "My rule does not match": :mod:`name_sets`. Never here: I/O, clocks,
anything that knows a proxy.
"""

from gatehouse.compiler.frontends.upstream_cluster.allocations import (
    Allocation,
    allocation,
    conditions,
)
from gatehouse.compiler.frontends.upstream_cluster.attachment import attached, gateways_of
from gatehouse.compiler.frontends.upstream_cluster.credentials import certificate_times
from gatehouse.compiler.frontends.upstream_cluster.front_end import FRONT_END
from gatehouse.compiler.frontends.upstream_cluster.inputs import (
    CLUSTERS,
)
from gatehouse.compiler.frontends.upstream_cluster.status import ClusterStatus, merge_status, status
from gatehouse.compiler.frontends.upstream_cluster.translate import contribution

__all__ = [
    "CLUSTERS",
    "FRONT_END",
    "Allocation",
    "ClusterStatus",
    "allocation",
    "attached",
    "conditions",
    "contribution",
    "gateways_of",
    "merge_status",
    "certificate_times",
    "status",
]
