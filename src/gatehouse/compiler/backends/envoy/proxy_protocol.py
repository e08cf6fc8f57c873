"""Ports that select a cluster by the destination in the PROXY protocol header.

Connections from untrusted proxies, without a header or with an unknown destination are closed. A
health check without a destination (LOCAL, UNKNOWN) has the address of the port itself, which is
never a destination.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

import msgspec
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.listener.proxy_protocol.v3 import proxy_protocol_pb2

from gatehouse.compiler.backends.envoy import client_ip, dynamic_clusters, names, quoting
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.source import Source, configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.incremental.grouping import (
    Derived,
    Grouping,
    Keyed,
    by_key,
    derive,
    group_by,
    presence,
)
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

PROXY_HEADER_TIMEOUT_SECONDS = 5.0
"""Timeout of the PROXY header in seconds."""


class RestrictedAddress(msgspec.Struct, frozen=True, order=True):
    """A destination address with restricted sources."""

    address: str
    sources: tuple[str, ...]


class ProxyProtocolInputs(msgspec.Struct, frozen=True):
    """Inputs of the listener of a PROXY protocol port."""

    proxies: tuple[str, ...]
    restricted: tuple[RestrictedAddress, ...]


def destinations(ask: Ask, which: tuple[Source, int]) -> Table[str, ir.Destination]:
    """Return the destinations of a port by address. ``which``: gateway and port."""
    return ask(_destinations, which).table


def _destinations(ask: Ask, which: tuple[Source, int]) -> Keyed[int, str, ir.Destination]:
    gateway, port = which
    tunnels = configuration(ask, gateway).proxy_protocol_listeners
    found = next((each.destinations for each in tunnels if each.port == port), ())
    return by_key(ask.last(), {port: found}, _key)


def _key(_: int, destination: ir.Destination) -> str:
    return f"{destination.address} {destination.port}"


def inputs(ask: Ask, which: tuple[Source, int]) -> ProxyProtocolInputs:
    """Return the inputs of a port's listener."""
    gateway, port = which
    tunnels = configuration(ask, gateway).proxy_protocol_listeners
    proxies = next((each.proxies for each in tunnels if each.port == port), ())
    return ProxyProtocolInputs(proxies, tuple(ask(_restricted, which).groups))


def _restricted(
    ask: Ask, which: tuple[Source, int]
) -> Grouping[None, str, ir.Destination, RestrictedAddress, bool]:
    return group_by(ask.last(), ask(destinations, which), _restriction, presence, None)


def _restriction(_: None, __: str, each: ir.Destination) -> Iterable[RestrictedAddress]:
    return [RestrictedAddress(each.address, each.sources)] if each.sources else []


def clusters_of_destinations(
    ask: Ask, which: tuple[Source, int]
) -> Derived[int, str, ir.Destination, dynamic_clusters.DynamicCluster]:
    """Return the dynamic clusters of a port's destinations. ``which``: gateway and port."""
    return derive(ask.last(), ask(destinations, which), _dynamic_cluster, which[1])


def _dynamic_cluster(
    port: int, _: str, target: ir.Destination
) -> dynamic_clusters.DynamicCluster | None:
    try:
        return destination(port, target)
    except InvalidValueError:
        # An invalid address cannot be a destination.
        return None


def destination(port: int, source: ir.Destination) -> dynamic_clusters.DynamicCluster:
    """Return the dynamic cluster of a destination. Raises InvalidValueError."""
    prefix = names.by_destination(port, source.sources)
    address = _address(source.address)
    host = f"[{address}]" if address.version == 6 else str(address)
    return dynamic_clusters.DynamicCluster(f"{prefix}{host}:{source.port}", source.cluster)


def fill(proto: listener_pb2.Listener, port: int, entrance: ProxyProtocolInputs) -> None:
    """Write the listener of a port. Raises InvalidValueError."""
    dynamic_clusters.limit_buffers(proto)
    proto.listener_filters.append(
        components.ListenerFilter(
            name="envoy.filters.listener.proxy_protocol",
            typed_config=packed(proxy_protocol_pb2.ProxyProtocol()),
        )
    )
    proto.listener_filters_timeout.CopyFrom(quoting.seconds(PROXY_HEADER_TIMEOUT_SECONDS))
    proto.filter_chains.extend(_chains(port, entrance))


def _chains(port: int, entrance: ProxyProtocolInputs) -> Iterator[components.FilterChain]:
    proxies = [client_ip.network(restricted) for restricted in entrance.proxies]
    for restricted in entrance.restricted:
        proto = components.FilterChain(
            name=names.chain(port, f"destination/{restricted.address}"),
            filters=_filters(port, restricted.sources),
        )
        address = _address(restricted.address)
        proto.filter_chain_match.prefix_ranges.append(client_ip.network(str(address)))
        sources = [client_ip.network(source) for source in restricted.sources]
        if proxies:
            proto.filter_chain_match.source_prefix_ranges.extend(sources)
            proto.filter_chain_match.direct_source_prefix_ranges.extend(proxies)
        else:
            # If any peer may set the source in the header, only the peer's own address counts.
            proto.filter_chain_match.direct_source_prefix_ranges.extend(sources)
        yield proto
    everything = components.FilterChain(
        name=names.chain(port, "by destination"), filters=_filters(port, ())
    )
    everything.filter_chain_match.direct_source_prefix_ranges.extend(proxies)
    yield everything


def _filters(port: int, sources: tuple[str, ...]) -> list[components.Filter]:
    prefix = names.by_destination(port, sources)
    return dynamic_clusters.filters(f"proxy_{port}", prefix, dynamic_clusters.DESTINATION)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise InvalidValueError("destination must be an IP address") from error
