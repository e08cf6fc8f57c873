"""Queries for the files of L4 listeners and of their upstreams."""

from __future__ import annotations

from gatehouse.compiler.backends.configuration import (
    ClusterReferences,
    Clusters,
    of_port,
    virtual_hosts,
)
from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.fragments import Fragment, failed
from gatehouse.compiler.backends.nginx import names, stream, tls_connectors, upstreams
from gatehouse.compiler.backends.source import Source, capabilities, configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.dataplane.file_set import File
from gatehouse.dataplane.origin import of_port as origin_of_port
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

ListenerKey = tuple[int, str]
"""Port and protocol."""

Weights = tuple[tuple[str, int], ...]
"""Names of clusters with their weights."""


def l4_listeners(ask: Ask, gateway: Source) -> Table[ListenerKey, ir.L4Listener]:
    """Return the L4 listeners that the proxy can serve."""
    if not capabilities(ask, gateway).stream_servers:
        return Table()
    streams = configuration(ask, gateway).l4_listeners
    return Table(((each.port, each.protocol), each) for each in streams)


def l4_files(ask: Ask, gateway: Source) -> Table[ListenerKey, Fragment[File]]:
    """Return the files of all L4 listeners."""
    return ask.map_keys(_l4_file, l4_listeners, gateway, failed)


def _l4_file(ask: Ask, which: tuple[Source, ListenerKey]) -> Fragment[File] | None:
    gateway, (number, protocol) = which
    listener = ask.entry(l4_listeners, gateway, (number, protocol))
    if listener is None:
        return None
    able, clusters = capabilities(ask, gateway), ClusterReferences(ask, gateway)
    try:
        tls_connectors.check(able, stream.used(listener, clusters))
        text = stream.stream(listener, ask(_ports, which), clusters)
    except Exception as error:
        origin = origin_of_port(gateway.name, number)
        return Fragment((), (unserved(origin, error),))
    return Fragment((File.make(names.stream_file(number, protocol), text),))


def _ports(ask: Ask, which: tuple[Source, ListenerKey]) -> stream.Ports:
    gateway, (number, protocol) = which
    found = configuration(ask, gateway)
    inside = internal_ports(found)
    shared = protocol == "TLS" and number in inside
    return stream.Ports(
        found.bind_address,
        _free_port(found, number, 1),
        inside.get(number, 0),
        ask(_https_names, (gateway, number)) if shared else (),
        found.settings,
        capabilities(ask, gateway).status_zones,
    )


def _https_names(ask: Ask, which: tuple[Source, int]) -> tuple[str, ...]:
    """Return the hostnames of an HTTPS port."""
    gateway, port = which
    return tuple(hostname for _, hostname in of_port(ask(virtual_hosts, gateway), port))


def l4_upstreams(ask: Ask, gateway: Source) -> Table[str, Weights]:
    """Return the upstreams of all L4 listeners by name."""
    clusters = ClusterReferences(ask, gateway)
    by_name = stream.upstreams(ask(l4_listeners, gateway).values(), clusters)
    return Table(
        (name, tuple((cluster.name, weight) for cluster, weight in shares))
        for name, shares in by_name.items()
    )


def l4_upstream_files(ask: Ask, gateway: Source) -> Table[str, Fragment[File]]:
    """Return the files of the upstreams of all L4 listeners."""
    return ask.map_keys(_l4_upstream_files, l4_upstreams, gateway, failed)


def _l4_upstream_files(ask: Ask, which: tuple[Source, str]) -> Fragment[File] | None:
    gateway, name = which
    weights = ask.entry(l4_upstreams, gateway, name)
    if weights is None:
        return None
    able, clusters = capabilities(ask, gateway), Clusters(ask, gateway)
    shares = [(clusters[cluster], weight) for cluster, weight in weights]
    text = upstreams.stream_upstream(able, name, shares)
    file = File.make(names.stream_upstream_file(name), text)
    return Fragment((file, *upstreams.endpoints_files(able, name, shares)))


def internal_ports(gateway: ir.Gateway) -> dict[int, int]:
    """Return, for each HTTPS port shared with TLS listeners, the port where HTTPS listens."""
    tls_ports = {each.port for each in gateway.l4_listeners if each.protocol == "TLS"}
    return {
        each.port: _free_port(gateway, each.port, 0)
        for each in gateway.listeners
        if each.port in tls_ports
    }


def _free_port(gateway: ir.Gateway, port: int, kind: int) -> int:
    """Return a port of this Gateway's address that no listener uses."""
    taken = {each.port for each in gateway.listeners} | {each.port for each in gateway.l4_listeners}
    ports = sorted(taken)
    candidate = 40_000 + 2 * ports.index(port) + kind
    while candidate in taken:
        candidate += 2 * len(ports)
    return candidate
