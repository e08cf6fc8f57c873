"""Services whose ports say so are upstreams of load balancers outside the cluster.

Reading order: :mod:`inputs` (what is read), :mod:`sources` (who asks for load balancers, with
:mod:`nlk`), :mod:`hosts` (how each is reached), :mod:`claims` (which port of which Service is which
upstream), :mod:`ownership` (whose an upstream is that several want), :mod:`nodes` and
:mod:`servers` (who serves it), :mod:`machines` (what machines serve that are ours in whole),
:mod:`assemble` (the build plan), :mod:`findings` and :mod:`status`.
"The port is ignored": :mod:`claims`. "The node is missing": :mod:`nodes`. Never here: I/O, clocks,
anything that knows NGINX Plus.
"""

from gatehouse.compiler.frontends.external_load_balancer.findings import Finding, Note, Reason
from gatehouse.compiler.frontends.external_load_balancer.inputs import (
    INDEXES,
    KINDS,
    NLK_CONFIG_KEY,
    decode,
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
