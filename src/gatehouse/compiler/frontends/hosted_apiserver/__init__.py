"""Front end for HostedAPIServers: kube-apiservers of many clusters behind one L4 load balancer.

Reading order: :mod:`front_end` (the kind), :mod:`inputs` (the spec in normal form), :mod:`claims`
(conflicts between objects), :mod:`attachment` (listeners that an object attaches to),
:mod:`translate` (the IR of a Gateway), :mod:`status` and :mod:`dns`. "Another object has the
hostname": :mod:`claims`. "It attaches to no listener": :mod:`attachment`. Gateways, listeners,
Services and endpoints are those of the front end of Gateway API. Never here: I/O, clocks, anything
that knows a proxy.
"""

from gatehouse.compiler.frontends.hosted_apiserver.attachment import gateways_of_hosted
from gatehouse.compiler.frontends.hosted_apiserver.dns import Records, endpoint, records, zone_file
from gatehouse.compiler.frontends.hosted_apiserver.front_end import HOSTED_API_SERVER_FRONT_END
from gatehouse.compiler.frontends.hosted_apiserver.inputs import HOSTED
from gatehouse.compiler.frontends.hosted_apiserver.status import (
    HostedStatus,
    hosted_status,
    merge_hosted_status,
)
from gatehouse.compiler.frontends.hosted_apiserver.translate import (
    attached_hosted,
    hosted_contribution,
    with_hosted_apiservers,
)

__all__ = [
    "HOSTED_API_SERVER_FRONT_END",
    "HOSTED",
    "HostedStatus",
    "Records",
    "attached_hosted",
    "hosted_contribution",
    "endpoint",
    "with_hosted_apiservers",
    "gateways_of_hosted",
    "merge_hosted_status",
    "records",
    "hosted_status",
    "zone_file",
]
