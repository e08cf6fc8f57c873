"""Queries for the hostnames of TLS ports: which have a filter chain, and which only a dynamic
cluster.

Envoy selects chains first. A hostname that a chain with a wildcard covers needs a chain too.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from gatehouse.incremental.grouping import (
    Derived,
    Grouping,
    Keyed,
    Union,
    by_key,
    derive,
    group_by,
    merge_tables,
    presence,
)
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

_PortKey = tuple[GatewaySource, int]
"""Gateway and port."""

Wildcards = frozenset[str]


def hosts(ask: Ask, gateway: GatewaySource, port: int) -> Table[str, ir.L4Host]:
    """Return the L4 hosts of a TLS port by hostname."""
    return ask(_hosts, gateway, port).table


def _hosts(ask: Ask, gateway: GatewaySource, port: int) -> Keyed[int, str, ir.L4Host]:
    streams = gateway_configuration(ask, gateway).l4_listeners
    host = next(
        (stream.hosts for stream in streams if (stream.port, stream.protocol) == (port, "TLS")), ()
    )
    return by_key(ask.last(), {port: host}, _hostname)


def _hostname(_: int, host: ir.L4Host) -> str:
    return host.hostname


def chained_hosts(ask: Ask, gateway: GatewaySource, port: int) -> tuple[ir.L4Host, ...]:
    """Return the hosts of a TLS port that have a chain, sorted by hostname."""
    return tuple(ask(_chained, gateway, port).table.values())


def _chained(
    ask: Ask, gateway: GatewaySource, port: int
) -> Derived[Wildcards, str, ir.L4Host, ir.L4Host]:
    return derive(
        ask.last(), ask(hosts, gateway, port), _if_chained, ask(_wildcards, gateway, port)
    )


def _if_chained(wildcards: Wildcards, hostname: str, host: ir.L4Host) -> ir.L4Host | None:
    chained = needs_chain(host) or _covered(hostname, wildcards)
    return host if chained else None


def passes(ask: Ask, gateway: GatewaySource, port: int) -> bool:
    """Return whether TLS passes through a port for any hostname."""
    return bool(ask(_by_termination, gateway, port).groups)


def _by_termination(
    ask: Ask, gateway: GatewaySource, port: int
) -> Grouping[None, str, ir.L4Host, bool, bool]:
    return group_by(ask.last(), ask(hosts, gateway, port), _passes, presence, None)


def _passes(_: None, __: str, host: ir.L4Host) -> Iterable[bool]:
    return [] if host.certificates else [True]


def _clusters_of_hosts(
    ask: Ask, gateway: GatewaySource, port: int
) -> Derived[tuple[Wildcards, int], str, ir.L4Host, DynamicCluster]:
    about = (ask(_wildcards, gateway, port), port)
    return derive(ask.last(), ask(hosts, gateway, port), _cluster_of_host, about)


def _cluster_of_host(
    about: tuple[Wildcards, int], hostname: str, host: ir.L4Host
) -> DynamicCluster | None:
    wildcards, port = about
    if needs_chain(host) or _covered(hostname, wildcards):
        return None
    route = object_rule_text(host.origin, host.rule)
    cluster = host.backends[0].cluster if host.backends else ""
    if not cluster and not route:
        return None
    return DynamicCluster(names.by_name(port) + hostname, cluster, route)


def _wildcards(ask: Ask, gateway: GatewaySource, port: int) -> Wildcards:
    """Return the wildcards of all chains of a port, also of those that terminate HTTPS."""
    https = (
        name for chain in ask(chains, gateway, port) if chain.certificates for name in chain.names
    )
    own = ask(_chained_wildcards, gateway, port).groups
    return frozenset((*own, *filter(_is_wildcard, https)))


def _chained_wildcards(
    ask: Ask, gateway: GatewaySource, port: int
) -> Grouping[None, str, ir.L4Host, str, bool]:
    return group_by(ask.last(), ask(hosts, gateway, port), _chained_wildcard, presence, None)


def _chained_wildcard(_: None, hostname: str, host: ir.L4Host) -> Iterable[str]:
    return [hostname] if _is_wildcard(hostname) and needs_chain(host) else []


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
    return ask(_dynamic_clusters, gateway).whole


def _dynamic_clusters(ask: Ask, gateway: GatewaySource) -> Union[str, DynamicCluster]:
    tls_ports, proxy_protocol_ports = ask(_ports, gateway)
    tables = (
        *(ask(_named_clusters_of_hosts, gateway, port) for port in tls_ports),
        *(ask(_named_clusters_of_destinations, gateway, port) for port in proxy_protocol_ports),
    )
    return merge_tables(ask.last(), tuple(table.table for table in tables))


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


def _named_clusters_of_hosts(
    ask: Ask, gateway: GatewaySource, port: int
) -> Keyed[str, str, DynamicCluster]:
    targets = ask(_clusters_of_hosts, gateway, port).table.values()
    return by_key(ask.last(), {"": targets}, _name)


def _named_clusters_of_destinations(
    ask: Ask, gateway: GatewaySource, port: int
) -> Keyed[str, str, DynamicCluster]:
    targets = ask(proxy_protocol.clusters_of_destinations, gateway, port).table.values()
    return by_key(ask.last(), {"": targets}, _name)


def _name(_: str, dynamic: DynamicCluster) -> str:
    return dynamic.name


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
