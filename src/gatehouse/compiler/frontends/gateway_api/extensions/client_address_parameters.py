"""Translation of ``rewriteClientIP`` of parameters to IR."""

from __future__ import annotations

from gatehouse.apis import data_plane_parameters as api
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import FieldParser
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.proxy_settings import NginxClientAddress
from kube_base.types import ip_addresses


def parse_client_address(
    parse: FieldParser, requested: api.RewriteClientIp | None
) -> ir.ClientAddress | None:
    """Return the source of the client address; None for the peer."""
    if requested is None or requested.mode is None:
        return None
    trusted = []
    for index, address in enumerate(requested.trusted_addresses):
        where = f"rewriteClientIP.trustedAddresses[{index}]"
        if address.type == "Hostname":
            parse.problems.append(f"spec.{where}: type Hostname is not supported")
            continue
        try:
            ip_addresses.ip_network(address.value, strict=False)
        except ValueError:
            parse.problems.append(
                f"spec.{where}.value: {address.value!r} must be an IP address or CIDR range"
            )
            continue
        trusted.append(address.value)
    return ir.ClientAddress(
        "proxy-protocol" if requested.mode == "ProxyProtocol" else "x-forwarded-for",
        tuple(trusted),
        NginxClientAddress(recursive=bool(requested.set_ip_recursively)),
    )
