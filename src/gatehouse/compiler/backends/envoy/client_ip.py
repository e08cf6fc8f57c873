"""Client addresses: where they come from, and whether backends receive them."""

from __future__ import annotations

from envoy.config.core.v3 import address_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.http.original_ip_detection.xff.v3 import xff_pb2

from gatehouse.compiler.backends.envoy import extensions
from gatehouse.compiler.backends.envoy.protobufs import truth, wrap_number
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir.proxy_settings import NginxSettings
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN
from kube_base.types import ip_addresses

_ALL_NETWORKS = {"0.0.0.0/0", "::/0"}
_NO_NETWORK = ("0.0.0.0/32",)
"""Matches no connection; an empty list of ranges would match all addresses."""


def apply_client_ip(proto: manager_pb2.HttpConnectionManager, edge: DataPlaneSettings) -> None:
    """Write the source of the client address, and whether X-Forwarded-For is sent to backends."""
    skip_append = bool({"x-forwarded-for", "*"} & {*edge.removed_headers})
    client_address = edge.client_address
    # Envoy treats an empty list as all addresses.
    if (
        client_address is None
        or client_address.source != "x-forwarded-for"
        or not client_address.trusted
    ):
        proto.use_remote_address.value = True
        proto.skip_xff_append = skip_append
        return
    proto.use_remote_address.value = False
    trusted = xff_pb2.XffTrustedCidrs(cidrs=[network(cidr) for cidr in client_address.trusted])
    detection = xff_pb2.XffConfig(xff_trusted_cidrs=trusted, skip_xff_append=truth(skip_append))
    proto.original_ip_detection_extensions.append(
        extensions.extension("envoy.http.original_ip_detection.xff", detection)
    )


def listener_filters(edge: DataPlaneSettings) -> list[listener_components_pb2.ListenerFilter]:
    """Return the listener filter that reads a PROXY protocol header, if it is the source."""
    client_address = edge.client_address
    if client_address is None or client_address.source != "proxy-protocol":
        return []
    return [extensions.proxy_header()]


def admit(listener: listener_pb2.Listener, edge: DataPlaneSettings) -> None:
    """Restrict a listener to trusted proxies if the client address comes from the PROXY protocol.

    Envoy replaces the address of every connection that starts with a header, so that connections
    from other peers must not match a filter chain. Raises InvalidValueError.
    """
    client_address = edge.client_address
    if (
        client_address is None
        or client_address.source != "proxy-protocol"
        or {*client_address.trusted} >= _ALL_NETWORKS
    ):
        return
    # Envoy rejects a listener that names one network twice.
    networks = (network(cidr) for cidr in client_address.trusted or _NO_NETWORK)
    trusted = {(cidr.address_prefix, cidr.prefix_len.value): cidr for cidr in networks}
    if listener.HasField("default_filter_chain"):
        # A default chain has no match conditions.
        listener.filter_chains.append(listener.default_filter_chain)
        listener.ClearField("default_filter_chain")
    for chain in listener.filter_chains:
        chain.filter_chain_match.direct_source_prefix_ranges.extend(trusted.values())


def unsupported_client_ip(edge: DataPlaneSettings) -> list[UnsupportedSetting]:
    """Return the settings of the data plane that Envoy does not support."""
    findings = [
        UnsupportedSetting(edge.source(f"nginx.{field}"), "not supported by Envoy")
        for field in NginxSettings.__struct_fields__
        if getattr(edge.nginx, field)
    ]
    address, field = edge.client_address, edge.source("recursive")
    if (
        address is not None
        and address.source == "x-forwarded-for"
        and not address.nginx.recursive
        and field != NO_ORIGIN
    ):
        why = "Envoy skips all trusted addresses in X-Forwarded-For, as with true"
        findings.append(UnsupportedSetting(field, why))
    return findings


def network(text: str) -> address_pb2.CidrRange:
    """Build a CIDR range from an address or a network. Raises InvalidValueError."""
    try:
        network = ip_addresses.ip_network(text, strict=False)
    except ValueError as error:
        raise InvalidValueError("trusted address must be an IP address or a CIDR range") from error
    return address_pb2.CidrRange(
        address_prefix=str(network.network_address), prefix_len=wrap_number(network.prefixlen)
    )
