"""The record of this front end: its kind, and how it plugs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis import hosted_api_servers, resources
from gatehouse.compiler.frontends.front_end import FrontEnd
from gatehouse.compiler.frontends.hosted_apiserver.attachment import gateways_of_hosted
from gatehouse.compiler.frontends.hosted_apiserver.claims import parse_claim_record
from gatehouse.compiler.frontends.hosted_apiserver.dns import Records, endpoint, records
from gatehouse.compiler.frontends.hosted_apiserver.inputs import HOSTED, hosted_buckets
from gatehouse.compiler.frontends.hosted_apiserver.status import hosted_status, merge_hosted_status
from gatehouse.compiler.frontends.hosted_apiserver.translate import (
    attached_hosted,
    hosted_contribution,
    with_hosted_apiservers,
)
from gatehouse.compiler.frontends.kinds import Kind, Kinds, OwnedKind
from gatehouse.incremental.query import Key
from kube_base.types.objects import ObjectName


def dns_endpoint_for(owner: Key, records: Records) -> Mapping[ObjectName, Mapping[str, Any] | None]:
    """Return the desired DNSEndpoint of a HostedAPIServer, which has the same name."""
    name = (owner[1], owner[2])
    return {name: endpoint(name, records)}


HOSTED_API_SERVER_FRONT_END = FrontEnd(
    Kinds(
        Kind(
            resources.HOSTED_API_SERVERS,
            hosted_api_servers.HostedAPIServer,
            indexes=(hosted_buckets,),
            status=hosted_status,
            read_record=parse_claim_record,
            gateways_of=gateways_of_hosted,
            owned=(OwnedKind(resources.DNS_ENDPOINTS, HOSTED, records, dns_endpoint_for),),
        )
    ),
    merge_hosted_status,
    contribution=hosted_contribution,
    attached=attached_hosted,
    extend=with_hosted_apiservers,
)
