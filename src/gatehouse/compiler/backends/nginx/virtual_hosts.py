"""Queries for the files of virtual hosts, and for what virtual hosts need beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gatehouse.compiler.backends.configuration import (
    ClusterReferences,
    Clusters,
    HostKey,
    of_port,
    virtual_hosts,
)
from gatehouse.compiler.backends.fragments import Fragment, Need, failed
from gatehouse.compiler.backends.nginx import (
    names,
    rate_limits,
    session_persistence,
    upstreams,
    weighted_upstreams,
)
from gatehouse.compiler.backends.nginx.directives import Directive
from gatehouse.compiler.backends.nginx.l4_listeners import internal_ports
from gatehouse.compiler.backends.nginx.route_context import Context
from gatehouse.compiler.backends.nginx.servers import Port, default_server, names_by_sni, server
from gatehouse.compiler.backends.source import Source, capabilities, configuration
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.dataplane.file_set import File
from gatehouse.incremental.grouping import Grouping, group_by, presence
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

UPSTREAM, RATE_LIMIT_ZONE, RELYING_PARTY = "upstream", "rate limit zone", "relying party"
"""Kinds of needs."""


class SharedUpstream(msgspec.Struct, frozen=True):
    """An upstream that routes of any virtual host may need."""

    shares: tuple[tuple[str, int], ...]
    """Names of clusters, with their weights."""
    by: str = ""
    """The variable that selects the endpoint."""


def ports(ask: Ask, gateway: Source) -> Table[int, Port]:
    """Return the HTTP and HTTPS ports of a gateway."""
    found = configuration(ask, gateway)
    inside = internal_ports(found)
    return Table(
        (
            listener.port,
            Port(
                listener.port,
                listener.protocol,
                found.bind_address,
                inside.get(listener.port, 0),
                listener.client_validation,
                found.settings,
            ),
        )
        for listener in found.listeners
    )


def server_files(ask: Ask, gateway: Source) -> Table[HostKey, Fragment[File]]:
    """Return the files of all virtual hosts."""
    return ask.map_keys(_server_file, virtual_hosts, gateway, failed)


def _server_file(ask: Ask, which: tuple[Source, HostKey]) -> Fragment[File] | None:
    gateway, (number, hostname) = which
    host = ask.entry(virtual_hosts, gateway, (number, hostname))
    port = ask.entry(ports, gateway, number)
    if host is None or port is None:
        return None
    context = Context(
        f"{number}/{hostname}",
        ClusterReferences(ask, gateway),
        capabilities(ask, gateway),
        host.settings.client,
        port.edge.removed_headers,
    )
    generated = server(port, host, context)
    file = File.make(names.server_file(number, hostname), generated.text)
    return Fragment((file,), generated.unsupported, frozenset(_needs(host, context)))


def default_files(ask: Ask, gateway: Source) -> Table[int, Fragment[File]]:
    """Return the files of the servers for unknown hostnames."""
    return ask.map_keys(_default_file, ports, gateway, failed)


def _default_file(ask: Ask, which: tuple[Source, int]) -> Fragment[File] | None:
    gateway, number = which
    port = ask.entry(ports, gateway, number)
    if port is None or ask.entry(virtual_hosts, gateway, (number, "")) is not None:
        return None
    return Fragment((File.make(names.default_file(number), default_server(port)),))


def names_by_sni_of_ports(ask: Ask, gateway: Source) -> tuple[Directive, ...]:
    """Return, for each HTTPS port, the map from SNI to the listener that it belongs to."""
    listeners = ask(_listeners, gateway).groups
    return tuple(
        names_by_sni(port, (name for _, name in of_port(listeners, port.number)))
        for port in ask(ports, gateway).values()
        if port.protocol == "HTTPS"
    )


def _listeners(ask: Ask, gateway: Source) -> Grouping[None, HostKey, ir.VirtualHost, HostKey, bool]:
    """Group the virtual hosts by port and hostname of their listener."""
    return group_by(ask.last(), ask(virtual_hosts, gateway), _listener_of, presence, None)


def _listener_of(_: None, key: HostKey, host: ir.VirtualHost) -> Iterable[HostKey]:
    return [(key[0], host.listener)]


def needs(ask: Ask, gateway: Source) -> Table[Need, bool]:
    """Return what virtual hosts need beside their own files."""
    return ask(_grouped_needs, gateway).groups


def _grouped_needs(
    ask: Ask, gateway: Source
) -> Grouping[None, HostKey, Fragment[File], Need, bool]:
    return group_by(ask.last(), ask(server_files, gateway), _needs_of, presence, None)


def _needs_of(_: None, __: HostKey, fragment: Fragment[File]) -> Iterable[Need]:
    return fragment.needs


def needs_of_kind(ask: Ask, which: tuple[Source, str]) -> Table[Need, bool]:
    """Return the needs of one kind; ``which``: gateway and kind."""
    gateway, kind = which
    return ask(needs, gateway).between((kind, "", None), (f"{kind}\0", "", None))


def shared_upstreams(ask: Ask, gateway: Source) -> Table[Need, bool]:
    """Return the upstreams that routes need beside those of clusters."""
    return ask(needs_of_kind, (gateway, UPSTREAM))


def shared_upstream_files(ask: Ask, gateway: Source) -> Table[Need, Fragment[File]]:
    """Return the files of the upstreams that routes need beside those of clusters."""
    return ask.map_keys(_shared_upstream_files, shared_upstreams, gateway, failed)


def _shared_upstream_files(ask: Ask, which: tuple[Source, Need]) -> Fragment[File]:
    gateway, (_, name, upstream) = which
    clusters = Clusters(ask, gateway)
    shares = [(clusters[cluster], weight) for cluster, weight in upstream.shares]
    return Fragment(upstreams.files(capabilities(ask, gateway), name, shares, upstream.by))


def _needs(host: ir.VirtualHost, context: Context) -> Iterator[Need]:
    for zone in rate_limits.zones(route.settings.rates for route in host.routes):
        yield RATE_LIMIT_ZONE, " ".join(zone.arguments), zone
    for route in host.routes:
        if isinstance(route.authentication, Oidc):
            yield RELYING_PARTY, repr(route.authentication), route.authentication
        if isinstance(route.action, ir.Forward):
            yield from _upstreams_of(route.name, route.action, context)


def _upstreams_of(route: str, action: ir.Forward, context: Context) -> Iterator[Need]:
    for name, shares in weighted_upstreams.upstreams(action, context.clusters).items():
        weights = tuple((cluster.name, weight) for cluster, weight in shares)
        yield UPSTREAM, name, SharedUpstream(weights)
    if action.persistence is None:
        return
    variable = names.session_variable(action.persistence, route)
    for backend in action.backends:
        cluster = context.clusters.get(backend.cluster)
        if cluster is not None and cluster.endpoints:
            name = session_persistence.upstream_name(cluster.name, action.persistence, route)
            yield UPSTREAM, name, SharedUpstream(((cluster.name, 1),), variable)
