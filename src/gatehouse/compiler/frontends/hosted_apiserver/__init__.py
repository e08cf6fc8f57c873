"""HostedAPIServers: kube-apiservers of many clusters behind one load balancer, by L4 alone.

Reading order: :mod:`inputs` (what is read, and what one object wants), :mod:`claims` (whose a name,
an address or a Service is that several want), :mod:`exposure` (which listeners of which Gateways an
object attaches to), :mod:`assemble` (what a Gateway serves of them, beside its routes),
:mod:`status` and :mod:`dns`. "Another object has the name": :mod:`claims`. "It is in no listener":
:mod:`exposure`. Gateways, listeners, Services and endpoints are those of the Gateway API's front
end. Never here: I/O, clocks, anything that knows a proxy.
"""

from gatehouse.compiler.frontends.hosted_apiserver.attachment import gateways_of
from gatehouse.compiler.frontends.hosted_apiserver.dns import Records, endpoint, records, zone
from gatehouse.compiler.frontends.hosted_apiserver.inputs import (
    HOSTED,
    INDEXES,
    KIND,
    KINDS,
    decode,
)
from gatehouse.compiler.frontends.hosted_apiserver.status import HostedStatus, merge_status, status
from gatehouse.compiler.frontends.hosted_apiserver.translate import (
    attached,
    contribution,
    with_hosted_apiservers,
)

__all__ = [
    "HOSTED",
    "INDEXES",
    "KIND",
    "KINDS",
    "HostedStatus",
    "Records",
    "attached",
    "contribution",
    "decode",
    "endpoint",
    "with_hosted_apiservers",
    "gateways_of",
    "merge_status",
    "records",
    "status",
    "zone",
]
