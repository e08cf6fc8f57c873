"""Ports that select a cluster by the destination in the PROXY protocol header.

Connections from untrusted proxies, without a header or with an unknown destination are closed. A
health check without a destination (LOCAL, UNKNOWN) has the address of the port itself, which is
never a destination.

A load balancer may add a PROXY header before that of the node proxy. The first listener reads the
outer header and checks both peers that it proves: the load balancer, and the node proxy as source.
It forwards the rest to a second listener on a socket, which reads the inner header.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

import msgspec
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.config.listener.v3 import listener_pb2

from gatehouse.compiler.backends.envoy import (
    client_ip,
    clusters,
    connection_log,
    dynamic_clusters,
    extensions,
    log_entries,
    names,
    quoting,
)
from gatehouse.compiler.backends.envoy.log_entries import ListenerLog
from gatehouse.compiler.backends.envoy.protobufs import written
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.source import GatewaySource, gateway_configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.access_log import object_rule_text
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, LISTENER_TYPE_URL, XdsResource
from gatehouse.incremental.grouping import (
    presence,
)
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table
from kube_base.types import ip_addresses

PROXY_HEADER_TIMEOUT_SECONDS = 5.0
"""Timeout of the PROXY header in seconds."""


_LOG_FIELDS = {"destination": connection_log.PROXY_DESTINATION}


class RestrictedAddress(msgspec.Struct, frozen=True, order=True):
    """A destination address with restricted sources."""

    address: str
    sources: tuple[str, ...]


class ProxyProtocolInputs(msgspec.Struct, frozen=True):
    """Inputs of the listener of a PROXY protocol port."""

    proxies: tuple[str, ...]
    restricted: tuple[RestrictedAddress, ...]
    balancers: tuple[str, ...] = ()
    """CIDR ranges of load balancers that add a PROXY header before that of the node proxy."""


def destinations(ask: Ask, gateway: GatewaySource, port: int) -> Table[str, ir.Destination]:
    """Return the destinations of a port by address."""
    tunnels = gateway_configuration(ask, gateway).proxy_protocol_listeners
    destinations_of_port = next(
        (tunnel.destinations for tunnel in tunnels if tunnel.port == port), ()
    )
    return ask.by_key(
        destinations_of_port, lambda destination: f"{destination.address} {destination.port}"
    )


def inputs(ask: Ask, gateway: GatewaySource, port: int) -> ProxyProtocolInputs:
    """Return the inputs of a port's listener."""
    tunnels = gateway_configuration(ask, gateway).proxy_protocol_listeners
    proxies = next((tunnel.proxies for tunnel in tunnels if tunnel.port == port), ())
    client = gateway_configuration(ask, gateway).settings.client_address
    balancers = client.trusted if client and client.source == "proxy-protocol" else ()
    return ProxyProtocolInputs(proxies, tuple(ask(_restricted, gateway, port)), balancers)


def _restricted(ask: Ask, gateway: GatewaySource, port: int) -> Table[RestrictedAddress, bool]:
    return ask.group_by(ask(destinations, gateway, port), _restriction, presence)


def _restriction(_: str, served_address: ir.Destination) -> Iterable[RestrictedAddress]:
    return (
        [RestrictedAddress(served_address.address, served_address.sources)]
        if served_address.sources
        else []
    )


def clusters_of_destinations(
    ask: Ask, gateway: GatewaySource, port: int
) -> Table[str, dynamic_clusters.DynamicCluster]:
    """Return the dynamic clusters of a port's destinations."""

    def cluster_of(_: str, target: ir.Destination) -> dynamic_clusters.DynamicCluster | None:
        try:
            return destination(port, target)
        except InvalidValueError:
            # An invalid address cannot be a destination.
            return None

    return ask.derive(ask(destinations, gateway, port), cluster_of)


def destination(port: int, source: ir.Destination) -> dynamic_clusters.DynamicCluster:
    """Return the dynamic cluster of a destination. Raises InvalidValueError."""
    prefix = names.by_destination(port, source.sources)
    address = _address(source.address)
    host = f"[{address}]" if address.version == 6 else str(address)
    name = f"{prefix}{host}:{source.port}"
    return dynamic_clusters.DynamicCluster(name, source.cluster, object_rule_text(source.origin))


def fill(
    proto: listener_pb2.Listener,
    port: int,
    entrance: ProxyProtocolInputs,
    log: ListenerLog | None = None,
) -> None:
    """Write the listener of a port. Raises InvalidValueError.

    ``log``: how the access log names the listener; None: nothing is logged.
    """
    dynamic_clusters.limit_buffers(proto)
    _read_header(proto, log)
    proto.filter_chains.extend(_chains(port, entrance, log))
    if entrance.balancers:
        proto.filter_chains.append(_onward(port, entrance))


def inner_resources(
    port: int, entrance: ProxyProtocolInputs, log: ListenerLog | None, origin: Origin
) -> list[XdsResource]:
    """Return the listener for the inner of two PROXY headers, and the cluster that leads to it.

    Restricted destinations have a chain only if node proxies are restricted as well: any other peer
    of the load balancer may have set the source. Raises InvalidValueError.
    """
    if not entrance.balancers:
        return []
    name, address = (
        names.behind_balancers(port),
        clusters.pipe(names.behind_balancers_socket(port)),
    )
    proto = listener_pb2.Listener(name=name, address=address)
    proto.address.pipe.mode = 0o600
    proto.per_connection_buffer_limit_bytes.value = dynamic_clusters.BUFFER
    _read_header(proto, log)
    for restricted in entrance.restricted if entrance.proxies else ():
        chain = _restricted_chain(port, restricted, log)
        sources = map(client_ip.network, restricted.sources)
        chain.filter_chain_match.source_prefix_ranges.extend(sources)
        proto.filter_chains.append(chain)
    proto.filter_chains.append(_shared_chain(port, log))
    cluster = clusters.static_cluster(name, address)
    return [
        XdsResource.make(CLUSTER_TYPE_URL, name, written(cluster), origins=(origin,)),
        XdsResource.make(LISTENER_TYPE_URL, name, written(proto), origins=(origin,)),
    ]


def _onward(port: int, entrance: ProxyProtocolInputs) -> components.FilterChain:
    """Return the chain that forwards what follows the header of a load balancer."""
    tcp_proxy = dynamic_clusters.forward_tcp(f"outer_{port}", unlimited=True)
    tcp_proxy.cluster = names.behind_balancers(port)
    chain = components.FilterChain(
        name=names.filter_chain_name(port, "behind balancers"),
        filters=[extensions.network_filter("envoy.filters.network.tcp_proxy", tcp_proxy)],
    )
    match = chain.filter_chain_match
    match.direct_source_prefix_ranges.extend(map(client_ip.network, entrance.balancers))
    match.source_prefix_ranges.extend(map(client_ip.network, entrance.proxies))
    return chain


def _read_header(proto: listener_pb2.Listener, log: ListenerLog | None) -> None:
    if log:
        proto.access_log.extend(connection_log.logs_of_unmatched(log, _LOG_FIELDS))
    proto.listener_filters.append(extensions.proxy_header())
    proto.listener_filters_timeout.CopyFrom(quoting.duration_of(PROXY_HEADER_TIMEOUT_SECONDS))


def _chains(
    port: int, entrance: ProxyProtocolInputs, log: ListenerLog | None
) -> Iterator[components.FilterChain]:
    proxies = [client_ip.network(restricted) for restricted in entrance.proxies]
    for restricted in entrance.restricted:
        proto = _restricted_chain(port, restricted, log)
        sources = [client_ip.network(source) for source in restricted.sources]
        if proxies:
            proto.filter_chain_match.source_prefix_ranges.extend(sources)
            proto.filter_chain_match.direct_source_prefix_ranges.extend(proxies)
        else:
            # If any peer may set the source in the header, only the peer's own address counts.
            proto.filter_chain_match.direct_source_prefix_ranges.extend(sources)
        yield proto
    everything = _shared_chain(port, log)
    everything.filter_chain_match.direct_source_prefix_ranges.extend(proxies)
    yield everything


def _restricted_chain(
    port: int, restricted: RestrictedAddress, log: ListenerLog | None
) -> components.FilterChain:
    proto = components.FilterChain(
        name=names.filter_chain_name(port, f"destination/{restricted.address}"),
        filters=_filters(port, restricted.sources, log),
    )
    address = _address(restricted.address)
    proto.filter_chain_match.prefix_ranges.append(client_ip.network(str(address)))
    return proto


def _shared_chain(port: int, log: ListenerLog | None) -> components.FilterChain:
    return components.FilterChain(
        name=names.filter_chain_name(port, "by destination"), filters=_filters(port, (), log)
    )


def _filters(
    port: int, sources: tuple[str, ...], log: ListenerLog | None
) -> list[components.Filter]:
    prefix = names.by_destination(port, sources)
    fields = _LOG_FIELDS | {"route": log_entries.ROUTE_OF_CLUSTER}
    logs = connection_log.connection_logs(log, fields) if log else []
    return dynamic_clusters.forwarding_filters(
        f"proxy_{port}", prefix, dynamic_clusters.DESTINATION, logs
    )


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ip_addresses.ip_address(text)
    except ValueError as error:
        raise InvalidValueError("destination must be an IP address") from error
