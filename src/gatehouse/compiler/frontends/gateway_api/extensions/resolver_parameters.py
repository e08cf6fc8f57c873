"""Translation of ``spec.dnsResolver`` of NginxProxy to IR. No I/O."""

from __future__ import annotations

import ipaddress

from gatehouse.apis import data_plane_parameters as api
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import (
    ValueProblem,
    parse_nginx_seconds,
)
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import FieldParser
from gatehouse.compiler.ir import settings as ir


def parse_resolver(
    parse: FieldParser, requested: api.DnsResolverSpec | None
) -> ir.NameResolution | None:
    """Return the name servers; None if there are none."""
    if requested is None or not requested.addresses:
        return None
    addresses = (
        parse(f"dnsResolver.addresses[{index}]", _address, server)
        for index, server in enumerate(requested.addresses)
    )
    return ir.NameResolution(
        tuple(filter(None, addresses)),
        parse("dnsResolver.timeout", _positive_seconds, requested.timeout),
        parse("dnsResolver.cacheTTL", _positive_seconds, requested.cache_ttl),
        not requested.disable_ipv6,
    )


def _address(requested: api.ResolverAddress) -> str:
    """Return an IP address. A name would need a name server of its own, and NGINX does not start
    if it cannot be resolved."""
    if requested.type != "IPAddress":
        raise ValueProblem(f"type {requested.type} is not supported: must be IPAddress")
    try:
        # A zone names an interface of one host.
        return str(ipaddress.ip_address(requested.value.replace("%", "/")))
    except ValueError:
        raise ValueProblem(f"value: {requested.value!r} must be an IP address") from None


def _positive_seconds(text: str | None) -> float | None:
    seconds = parse_nginx_seconds(text)
    if seconds == 0:
        raise ValueProblem("must be more than 0")
    return seconds
