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
from gatehouse.compiler.backends.fragments import Fragment, failed
from gatehouse.compiler.backends.source import Source, capabilities, configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.dataplane.xds.resources import Resource
from gatehouse.incremental.grouping import (
    Derived,
    Grouping,
    Keyed,
    Union,
    by_key,
    derive,
    group_by,
    presence,
    union,
)
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

PortKey = tuple[Source, int]
"""Gateway and port."""

Wildcards = frozenset[str]


def hosts(ask: Ask, which: PortKey) -> Table[str, ir.L4Host]:
    """Return the L4 hosts of a TLS port by hostname."""
    return ask(_hosts, which).table


def _hosts(ask: Ask, which: PortKey) -> Keyed[int, str, ir.L4Host]:
    gateway, port = which
    streams = configuration(ask, gateway).l4_listeners
    found = next(
        (each.hosts for each in streams if (each.port, each.protocol) == (port, "TLS")), ()
    )
    return by_key(ask.last(), {port: found}, _hostname)


def _hostname(_: int, host: ir.L4Host) -> str:
    return host.hostname


def chained_hosts(ask: Ask, which: PortKey) -> tuple[ir.L4Host, ...]:
    """Return the hosts of a TLS port that have a chain, sorted by hostname."""
    return tuple(ask(_chained, which).table.values())


def _chained(ask: Ask, which: PortKey) -> Derived[Wildcards, str, ir.L4Host, ir.L4Host]:
    return derive(ask.last(), ask(hosts, which), _if_chained, ask(_wildcards, which))


def _if_chained(wildcards: Wildcards, hostname: str, host: ir.L4Host) -> ir.L4Host | None:
    chained = needs_chain(host) or _covered(hostname, wildcards)
    return host if chained else None


def passes(ask: Ask, which: PortKey) -> bool:
    """Return whether TLS passes through a port for any hostname."""
    return bool(ask(_by_termination, which).groups)


def _by_termination(ask: Ask, which: PortKey) -> Grouping[None, str, ir.L4Host, bool, bool]:
    return group_by(ask.last(), ask(hosts, which), _passes, presence, None)


def _passes(_: None, __: str, host: ir.L4Host) -> Iterable[bool]:
    return [] if host.certificates else [True]


def _clusters_of_hosts(
    ask: Ask, which: PortKey
) -> Derived[tuple[Wildcards, int], str, ir.L4Host, DynamicCluster]:
    about = (ask(_wildcards, which), which[1])
    return derive(ask.last(), ask(hosts, which), _cluster_of_host, about)


def _cluster_of_host(
    about: tuple[Wildcards, int], hostname: str, host: ir.L4Host
) -> DynamicCluster | None:
    wildcards, port = about
    if needs_chain(host) or not host.backends or _covered(hostname, wildcards):
        return None
    return DynamicCluster(names.by_name(port) + hostname, host.backends[0].cluster)


def _wildcards(ask: Ask, which: PortKey) -> Wildcards:
    """Return the wildcards of all chains of a port, also of those that terminate HTTPS."""
    https = (name for each in ask(chains, which) if each.certificates for name in each.names)
    own = ask(_chained_wildcards, which).groups
    return frozenset((*own, *filter(_is_wildcard, https)))


def _chained_wildcards(ask: Ask, which: PortKey) -> Grouping[None, str, ir.L4Host, str, bool]:
    return group_by(ask.last(), ask(hosts, which), _chained_wildcard, presence, None)


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


def dynamic_clusters(ask: Ask, gateway: Source) -> Table[str, DynamicCluster]:
    """Return the dynamic clusters of all ports by name."""
    return ask(_dynamic_clusters, gateway).whole


def _dynamic_clusters(ask: Ask, gateway: Source) -> Union[str, DynamicCluster]:
    tls_ports, proxy_protocol_ports = ask(_ports, gateway)
    tables = (
        *(ask(_named_clusters_of_hosts, (gateway, port)) for port in tls_ports),
        *(ask(_named_clusters_of_destinations, (gateway, port)) for port in proxy_protocol_ports),
    )
    return union(ask.last(), tuple(each.table for each in tables))


def _ports(ask: Ask, gateway: Source) -> tuple[tuple[int, ...], tuple[int, ...]]:
    found = configuration(ask, gateway)
    tls = (each.port for each in found.l4_listeners if each.protocol == "TLS")
    return tuple(tls), tuple(each.port for each in found.proxy_protocol_listeners)


def _named_clusters_of_hosts(ask: Ask, which: PortKey) -> Keyed[str, str, DynamicCluster]:
    found = ask(_clusters_of_hosts, which).table.values()
    return by_key(ask.last(), {"": found}, _name)


def _named_clusters_of_destinations(ask: Ask, which: PortKey) -> Keyed[str, str, DynamicCluster]:
    found = ask(proxy_protocol.clusters_of_destinations, which).table.values()
    return by_key(ask.last(), {"": found}, _name)


def _name(_: str, dynamic: DynamicCluster) -> str:
    return dynamic.name


def resources(ask: Ask, gateway: Source) -> Table[str, Fragment[Resource]]:
    """Return the resources of all dynamic clusters."""
    return ask.map_keys(_resources, dynamic_clusters, gateway, failed)


def _resources(ask: Ask, which: tuple[Source, str]) -> Fragment[Resource] | None:
    gateway, name = which
    dynamic = ask.entry(dynamic_clusters, gateway, name)
    cluster = Clusters(ask, gateway).get(dynamic.cluster) if dynamic is not None else None
    if cluster is None:
        return None
    try:
        proto = clusters.cluster(cluster, capabilities(ask, gateway), quoting.text(name))
        return Fragment((proto, clusters.endpoints(cluster, name)))
    except Exception as error:
        return Fragment((), (unserved(cluster.origin, error),))
