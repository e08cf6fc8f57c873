"""Front end for load balancers outside the cluster, whose upstreams are ports of Services.

Reading order: :mod:`front_end` (the kinds), :mod:`inputs` (index buckets), :mod:`sources`
(ExternalLoadBalancers, and ``nlk-config`` with :mod:`nlk_config`), :mod:`hosts` (URL and
credentials of each host),
:mod:`claims` (ports of Services that request upstreams), :mod:`ownership` (conflicts between
claims), :mod:`nodes` and :mod:`servers` (the servers of an upstream; addresses: :mod:`addresses`),
:mod:`machines` (the whole configuration of external machines), :mod:`translate` (the IR),
:mod:`findings` and :mod:`status`. "The port is ignored": :mod:`claims`. "The node is missing":
:mod:`nodes`. Never here: I/O, clocks, anything that knows NGINX Plus.
"""

from gatehouse.compiler.frontends.external_load_balancer.findings import Finding, Note, Reason
from gatehouse.compiler.frontends.external_load_balancer.front_end import (
    FRONT_END,
    INDEXES,
    KINDS,
    decode,
)
from gatehouse.compiler.frontends.external_load_balancer.inputs import (
    NLK_CONFIG_KEY,
    name_of,
    owned,
    relevant,
)
from gatehouse.compiler.frontends.external_load_balancer.sources import load_balancer_sources
from gatehouse.compiler.frontends.external_load_balancer.status import (
    merged,
    owned_upstreams,
    status,
)
from gatehouse.compiler.frontends.external_load_balancer.translate import Compiled, compile_balancer

__all__ = [
    "FRONT_END",
    "INDEXES",
    "KINDS",
    "NLK_CONFIG_KEY",
    "Compiled",
    "Finding",
    "Note",
    "Reason",
    "compile_balancer",
    "decode",
    "merged",
    "name_of",
    "owned",
    "relevant",
    "owned_upstreams",
    "load_balancer_sources",
    "status",
]
