"""Queries for the hostnames of TLS ports: which have a filter chain, and which only a dynamic
cluster.

Envoy selects chains first. A hostname that a chain with a wildcard covers needs a chain too.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from gatehouse.compiler.backends.configuration import Clusters
from gatehouse.compiler.backends.envoy import clusters, names, proxy_protocol, quoting
from gatehouse.compiler.backends.envoy.dynamic_clusters import DynamicCluster, needs_chain
from gatehouse.compiler.backends.envoy.filter_chains import chains
from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.fragments import Fragment, failed_fragment
from gatehouse.compiler.backends.source import GatewaySource, capabilities, gateway_configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.access_log import object_rule_text
from gatehouse.dataplane.xds.resources import XdsResource
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

_PortKey = tuple[GatewaySource, int]
"""Gateway and port."""

Wildcards = frozenset[str]


def hosts(ask: Ask, gateway: GatewaySource, port: int) -> Table[str, ir.L4Host]:
    """Return the L4 hosts of a TLS port by hostname."""
    streams = gateway_configuration(ask, gateway).l4_listeners
    own = next(
        (stream.hosts for stream in streams if (stream.port, stream.protocol) == (port, "TLS")), ()
    )
    return ask.by_key(own, attrgetter("hostname"))


def chained_hosts(ask: Ask, gateway: GatewaySource, port: int) -> tuple[ir.L4Host, ...]:
    """Return the hosts of a TLS port that have a chain, sorted by hostname."""
    return tuple(ask(_chained, gateway, port).values())


def _chained(ask: Ask, gateway: GatewaySource, port: int) -> Table[str, ir.L4Host]:
    wildcards = ask(_wildcards, gateway, port)

    def if_chained(hostname: str, host: ir.L4Host) -> ir.L4Host | None:
        return host if needs_chain(host) or _covered(hostname, wildcards) else None

    return ask.derive(ask(hosts, gateway, port), if_chained, about=wildcards)


def passes(ask: Ask, gateway: GatewaySource, port: int) -> bool:
    """Return whether TLS passes through a port for any hostname."""
    without_certificates = ask.total(
        ask(hosts, gateway, port), lambda host: 0 if host.certificates else 1
    )
    return without_certificates > 0


def _clusters_of_hosts(ask: Ask, gateway: GatewaySource, port: int) -> Table[str, DynamicCluster]:
    wildcards = ask(_wildcards, gateway, port)

    def cluster_of(hostname: str, host: ir.L4Host) -> DynamicCluster | None:
        if needs_chain(host) or _covered(hostname, wildcards):
            return None
        route = object_rule_text(host.origin, host.rule)
        cluster = host.backends[0].cluster if host.backends else ""
        if not cluster and not route:
            return None
        return DynamicCluster(names.by_name(port) + hostname, cluster, route)

    return ask.derive(ask(hosts, gateway, port), cluster_of, about=wildcards)


def _wildcards(ask: Ask, gateway: GatewaySource, port: int) -> Wildcards:
    """Return the wildcards of all chains of a port, also of those that terminate HTTPS."""
    https = (
        name for chain in ask(chains, gateway, port) if chain.certificates for name in chain.names
    )
    own = ask(_chained_wildcards, gateway, port)
    return frozenset((*own, *filter(_is_wildcard, https)))


def _chained_wildcards(ask: Ask, gateway: GatewaySource, port: int) -> Table[str, bool]:
    return ask.derive(
        ask(hosts, gateway, port),
        lambda hostname, host: True if _is_wildcard(hostname) and needs_chain(host) else None,
    )


def _is_wildcard(hostname: str) -> bool:
    return not hostname or hostname.startswith("*.")


def _covered(hostname: str, wildcards: Wildcards) -> bool:
    if not wildcards or not hostname:
        return False
    labels = hostname.removeprefix("*.").split(".")
    first = 0 if hostname.startswith("*.") else 1
    tails = (f"*.{'.'.join(labels[start:])}" for start in range(first, len(labels)))
    return "" in wildcards or any(tail in wildcards for tail in tails if tail != hostname)


def dynamic_clusters(ask: Ask, gateway: GatewaySource) -> Table[str, DynamicCluster]:
    """Return the dynamic clusters of all ports by name."""
    tls_ports, proxy_protocol_ports = ask(_ports, gateway)
    return ask.merge(
        (
            *(ask(_named, _clusters_of_hosts, gateway, port) for port in tls_ports),
            *(
                ask(_named, proxy_protocol.clusters_of_destinations, gateway, port)
                for port in proxy_protocol_ports
            ),
        )
    )


def _ports(ask: Ask, gateway: GatewaySource) -> tuple[tuple[int, ...], tuple[int, ...]]:
    configuration = gateway_configuration(ask, gateway)
    tls = (
        l4_listener.port
        for l4_listener in configuration.l4_listeners
        if l4_listener.protocol == "TLS"
    )
    return tuple(tls), tuple(
        proxy_protocol_listener.port
        for proxy_protocol_listener in configuration.proxy_protocol_listeners
    )


def _named(
    ask: Ask,
    clusters_of: Callable[[Ask, GatewaySource, int], Table[str, DynamicCluster]],
    gateway: GatewaySource,
    port: int,
) -> Table[str, DynamicCluster]:
    """Return the dynamic clusters of a port by their own names."""
    return ask.by_key(ask(clusters_of, gateway, port).values(), attrgetter("name"))


def passthrough_resources(ask: Ask, gateway: GatewaySource) -> Table[str, Fragment[XdsResource]]:
    """Return the resources of all dynamic clusters."""
    return ask.map_keys(_resources, dynamic_clusters, gateway, failed_fragment)


def _resources(ask: Ask, gateway: GatewaySource, name: str) -> Fragment[XdsResource] | None:
    dynamic = ask.entry(dynamic_clusters, gateway, key=name)
    if dynamic is not None and not dynamic.cluster:
        return Fragment((clusters.build_closed_cluster(quoting.check_text(name), dynamic.route),))
    cluster = Clusters(ask, gateway).get(dynamic.cluster) if dynamic is not None else None
    if dynamic is None or cluster is None:
        return None
    try:
        proto = clusters.build_cluster(
            cluster, capabilities(ask, gateway), quoting.check_text(name), dynamic.route
        )
        return Fragment((proto, *clusters.build_endpoints(cluster, name)))
    except Exception as error:
        return Fragment((), (unserved(cluster.origin, error),))
