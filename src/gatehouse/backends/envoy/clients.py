"""Who clients are: their address, and what backends are told of it."""

from __future__ import annotations

import ipaddress
from typing import Any

from envoy.config.core.v3 import address_pb2, extension_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.listener.proxy_protocol.v3 import proxy_protocol_pb2
from envoy.extensions.http.original_ip_detection.xff.v3 import xff_pb2

from gatehouse.backends.envoy.protobufs import number, packed, truth
from gatehouse.backends.envoy.quoting import UnwritableError
from gatehouse.ir.settings import Edge


def apply(made: Any, edge: Edge) -> None:
    """Write into a connection manager whose address counts, and whether backends are told."""
    untold = bool({"x-forwarded-for", "*"} & {*edge.untold})
    known = edge.client_address
    if known is None or known.source != "x-forwarded-for":
        made.use_remote_address.value = True
        made.skip_xff_append = untold
        return
    made.use_remote_address.value = False
    trusted = xff_pb2.XffTrustedCidrs(cidrs=[network(each) for each in known.trusted])
    detection = xff_pb2.XffConfig(xff_trusted_cidrs=trusted, skip_xff_append=truth(untold))
    made.original_ip_detection_extensions.append(
        extension_pb2.TypedExtensionConfig(
            name="envoy.http.original_ip_detection.xff", typed_config=packed(detection)
        )
    )


def listener_filters(edge: Edge) -> list[Any]:
    """Give what reads the address that a connection begins with, if it begins with one."""
    known = edge.client_address
    if known is None or known.source != "proxy-protocol":
        return []
    return [
        listener_components_pb2.ListenerFilter(
            name="envoy.filters.listener.proxy_protocol",
            typed_config=packed(proxy_protocol_pb2.ProxyProtocol()),
        )
    ]


def missing(edge: Edge) -> list[str]:
    """Say what of the edge Envoy leaves out."""
    known = edge.client_address
    found = []
    if known is not None and known.source == "proxy-protocol" and not _everybody(known.trusted):
        why = "Envoy believes the PROXY protocol of all who connect"
        found.append(f"NginxProxy: spec.rewriteClientIP.trustedAddresses: {why}")
    if edge.tokens:
        found.append("NginxProxy: spec.serverTokens: Envoy does not say its version")
    return found


def _everybody(trusted: tuple[str, ...]) -> bool:
    return {"0.0.0.0/0", "::/0"} <= {*trusted}


def network(text: str) -> Any:
    """Write an address or a network. Raises UnwritableError."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise UnwritableError("a trusted address is neither an address nor a network") from error
    return address_pb2.CidrRange(
        address_prefix=str(network.network_address), prefix_len=number(network.prefixlen)
    )
