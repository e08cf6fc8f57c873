"""Front end for HostedAPIServers: kube-apiservers of many clusters behind one L4 load balancer.

Reading order: :mod:`front_end` (the kind), :mod:`inputs` (the spec in normal form), :mod:`claims`
(conflicts between objects), :mod:`attachment` (listeners that an object attaches to),
:mod:`translate` (the IR of a Gateway), :mod:`status` and :mod:`dns`. "Another object has the
hostname": :mod:`claims`. "It attaches to no listener": :mod:`attachment`. Gateways, listeners,
Services and endpoints are those of the front end of Gateway API. Never here: I/O, clocks, anything
that knows a proxy.
"""

from gatehouse.compiler.frontends.hosted_apiserver.dns import endpoint, records, zone_file
from gatehouse.compiler.frontends.hosted_apiserver.front_end import HOSTED_API_SERVER_FRONT_END
from gatehouse.compiler.frontends.hosted_apiserver.inputs import HOSTED
from gatehouse.compiler.frontends.hosted_apiserver.status import HostedStatus

__all__ = [
    "HOSTED_API_SERVER_FRONT_END",
    "HOSTED",
    "HostedStatus",
    "endpoint",
    "records",
    "zone_file",
]
