"""Front end for load balancers outside the cluster, whose upstreams are ports of Services.

Reading order: :mod:`front_end` (the kinds), :mod:`inputs` (index buckets), :mod:`sources`
(ExternalLoadBalancers, and ConfigMaps of nlk with :mod:`nlk_config`), :mod:`hosts` (URL and
credentials of each host),
:mod:`claims` (ports of Services that request upstreams), :mod:`ownership` (conflicts between
claims), :mod:`nodes` and :mod:`servers` (the servers of an upstream; addresses: :mod:`addresses`),
:mod:`machines` (the whole configuration of external machines), :mod:`translate` (the IR),
:mod:`findings` and :mod:`status`. "The port is ignored": :mod:`claims`. "The node is missing":
:mod:`nodes`. Never here: I/O, clocks, anything that knows NGINX Plus.
"""

from gatehouse.compiler.frontends.external_load_balancer.findings import LoadBalancerReason
from gatehouse.compiler.frontends.external_load_balancer.front_end import (
    LOAD_BALANCER_FRONT_END,
    LOAD_BALANCER_INDEXES,
    LOAD_BALANCER_KINDS,
    decode_balancer_object,
)
from gatehouse.compiler.frontends.external_load_balancer.hosts import balancer_deadlines
from gatehouse.compiler.frontends.external_load_balancer.inputs import (
    NLK_CONFIG_KEY,
    owned,
    relevant,
    source_name,
)
from gatehouse.compiler.frontends.external_load_balancer.sources import load_balancer_sources
from gatehouse.compiler.frontends.external_load_balancer.status import (
    balancer_status,
    merge_balancer_status,
    owned_upstreams,
)
from gatehouse.compiler.frontends.external_load_balancer.translate import (
    CompiledLoadBalancer,
    compile_balancer,
)

__all__ = [
    "LOAD_BALANCER_FRONT_END",
    "LOAD_BALANCER_INDEXES",
    "LOAD_BALANCER_KINDS",
    "NLK_CONFIG_KEY",
    "CompiledLoadBalancer",
    "LoadBalancerReason",
    "balancer_deadlines",
    "compile_balancer",
    "decode_balancer_object",
    "merge_balancer_status",
    "source_name",
    "owned",
    "relevant",
    "owned_upstreams",
    "load_balancer_sources",
    "balancer_status",
]
