"""Who clients are: their address, and what backends are told of it."""

from __future__ import annotations

import ipaddress
from typing import Any

from envoy.config.core.v3 import address_pb2, extension_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.listener.proxy_protocol.v3 import proxy_protocol_pb2
from envoy.extensions.http.original_ip_detection.xff.v3 import xff_pb2

from gatehouse.compiler.backends.envoy.protobufs import number, packed, truth
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.ir.settings import DataPlaneSettings

_EVERYBODY = {"0.0.0.0/0", "::/0"}
_NOBODY = ("0.0.0.0/32",)
"""No connection comes from this address, and an empty list of ranges stands for all addresses."""


def apply(made: Any, edge: DataPlaneSettings) -> None:
    """Write into a connection manager whose address counts, and whether backends are told."""
    untold = bool({"x-forwarded-for", "*"} & {*edge.removed_headers})
    known = edge.client_address
    # Envoy takes an empty list for all addresses.
    if known is None or known.source != "x-forwarded-for" or not known.trusted:
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


def listener_filters(edge: DataPlaneSettings) -> list[Any]:
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


def admit(listener: Any, edge: DataPlaneSettings) -> None:
    """Limit a listener to trusted proxies where the PROXY protocol says who a client is.

    Envoy replaces the address of every connection that begins with a header, so that one from
    another address must not find a filter chain. Raises InvalidValueError.
    """
    known = edge.client_address
    if known is None or known.source != "proxy-protocol" or {*known.trusted} >= _EVERYBODY:
        return
    trusted = [network(each) for each in known.trusted or _NOBODY]
    if listener.HasField("default_filter_chain"):
        # A default chain has no condition.
        listener.filter_chains.append(listener.default_filter_chain)
        listener.ClearField("default_filter_chain")
    for chain in listener.filter_chains:
        chain.filter_chain_match.direct_source_prefix_ranges.extend(trusted)


def unsupported(edge: DataPlaneSettings) -> list[str]:
    """Say what of the edge Envoy leaves out."""
    if not edge.server_tokens:
        return []
    return ["NginxProxy: spec.serverTokens: Envoy does not say its version"]


def network(text: str) -> Any:
    """Write an address or a network. Raises InvalidValueError."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise InvalidValueError("a trusted address is neither an address nor a network") from error
    return address_pb2.CidrRange(
        address_prefix=str(network.network_address), prefix_len=number(network.prefixlen)
    )
