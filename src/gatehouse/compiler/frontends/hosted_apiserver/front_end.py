"""The record of this front end: its kind, and how it plugs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis import hosted_api_servers, resources
from gatehouse.compiler.frontends.front_end import FrontEnd
from gatehouse.compiler.frontends.hosted_apiserver.attachment import gateways_of
from gatehouse.compiler.frontends.hosted_apiserver.dns import Records, endpoint, records
from gatehouse.compiler.frontends.hosted_apiserver.inputs import HOSTED, buckets
from gatehouse.compiler.frontends.hosted_apiserver.status import merge_status, status
from gatehouse.compiler.frontends.hosted_apiserver.translate import (
    attached,
    contribution,
    with_hosted_apiservers,
)
from gatehouse.compiler.frontends.kinds import Kind, Kinds, Name, OwnedKind
from gatehouse.incremental.query import Key


def dns_endpoint_for(owner: Key, records: Records) -> Mapping[Name, Mapping[str, Any] | None]:
    """Return the desired DNSEndpoint of a HostedAPIServer, which has the same name."""
    name = (owner[1], owner[2])
    return {name: endpoint(name, records)}


FRONT_END = FrontEnd(
    Kinds(
        Kind(
            resources.HOSTED_API_SERVERS,
            hosted_api_servers.HostedAPIServer,
            indexes=(buckets,),
            status=status,
            gateways_of=gateways_of,
            owned=(OwnedKind(resources.DNS_ENDPOINTS, HOSTED, records, dns_endpoint_for),),
        )
    ),
    merge_status,
    contribution=contribution,
    attached=attached,
    extend=with_hosted_apiservers,
)
