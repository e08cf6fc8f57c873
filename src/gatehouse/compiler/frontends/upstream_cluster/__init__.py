"""KubeGateway's UpstreamClusters, behind listeners of Gateways (decision 0011).

Reading order: :mod:`inputs` (what is read) and :mod:`findings` (what can be said of it),
:mod:`attaching` (which listeners serve a cluster), :mod:`hosts` (under which names), :mod:`names`,
:mod:`rules`, :mod:`limits`, :mod:`gates`, :mod:`lifetimes`, :mod:`servers` and :mod:`policies`
(what the object means; pure functions of it), :mod:`credentials`, :mod:`validity` (whether
certificates hold by time and name), :mod:`assemble` (the build plan), :mod:`status`,
:mod:`allocations` (who has how much of limits that data planes share). :mod:`request_info` and
:mod:`deciding` say what becomes of a request: for `gatehouse explain`, and for tests of what
decides it in traffic. "My rule does not match": :mod:`names`. Never here: I/O, clocks, anything
that knows a proxy.
"""

from gatehouse.compiler.frontends.upstream_cluster.allocations import (
    Allocation,
    allocation,
    conditions,
)
from gatehouse.compiler.frontends.upstream_cluster.attachment import attached, gateways_of
from gatehouse.compiler.frontends.upstream_cluster.credentials import certificate_times
from gatehouse.compiler.frontends.upstream_cluster.inputs import (
    CLUSTERS,
    INDEXES,
    KINDS,
    decode,
    passed,
    replicas,
)
from gatehouse.compiler.frontends.upstream_cluster.status import ClusterStatus, merge_status, status
from gatehouse.compiler.frontends.upstream_cluster.translate import contribution

__all__ = [
    "CLUSTERS",
    "INDEXES",
    "KINDS",
    "Allocation",
    "ClusterStatus",
    "allocation",
    "attached",
    "conditions",
    "contribution",
    "decode",
    "gateways_of",
    "merge_status",
    "certificate_times",
    "passed",
    "replicas",
    "status",
]
