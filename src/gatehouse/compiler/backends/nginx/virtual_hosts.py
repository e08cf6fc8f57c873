"""Queries for the files of virtual hosts, and for what virtual hosts need beside them."""

from __future__ import annotations

from gatehouse.compiler.backends import relying_parties
from gatehouse.compiler.backends.configuration import (
    ClusterReferences,
    Clusters,
    PortHostname,
    all_virtual_hosts,
    entries_of_port,
)
from gatehouse.compiler.backends.failures import served_without
from gatehouse.compiler.backends.fragments import Fragment, Need, failed_fragment
from gatehouse.compiler.backends.nginx import (
    names,
    server_certificates,
    server_tls,
    session_persistence,
    upstreams,
)
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import Directive
from gatehouse.compiler.backends.nginx.l4_listeners import internal_ports
from gatehouse.compiler.backends.nginx.route_context import (
    UPSTREAM,
    NginxRouteContext,
    TraceContext,
)
from gatehouse.compiler.backends.nginx.servers import (
    ServerPort,
    default_server,
    names_by_sni,
    write_server,
)
from gatehouse.compiler.backends.source import GatewaySource, capabilities, gateway_configuration
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.file_set import File
from gatehouse.dataplane.origin import gateway_origin
from gatehouse.incremental.grouping import presence
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table


def _ports(ask: Ask, gateway: GatewaySource) -> Table[int, ServerPort]:
    """Return the HTTP and HTTPS ports of a gateway."""
    configuration = gateway_configuration(ask, gateway)
    inside = internal_ports(configuration)
    return Table(
        (
            listener.port,
            ServerPort(
                listener.port,
                listener.protocol,
                configuration.bind_address,
                inside.get(listener.port, 0),
                listener.client_validation,
                configuration.settings,
                listener.tls,
            ),
        )
        for listener in configuration.listeners
    )


def server_files(ask: Ask, gateway: GatewaySource) -> Table[PortHostname, Fragment[File]]:
    """Return the files of all virtual hosts."""
    return ask.map_keys(_server_file, all_virtual_hosts, gateway, failed_fragment)


def _server_file(ask: Ask, gateway: GatewaySource, key: PortHostname) -> Fragment[File] | None:
    number, hostname = key
    host = ask.entry(all_virtual_hosts, gateway, key=(number, hostname))
    port = ask.entry(_ports, gateway, key=number)
    if host is None or port is None:
        return None
    host, sessionless = session_persistence.served_host(host)
    context = NginxRouteContext(
        f"{number}/{hostname}",
        ClusterReferences(ask, gateway),
        capabilities(ask, gateway),
        host.settings.client,
        port.edge.removed_headers,
        _trace_context(port.edge, capabilities(ask, gateway), gateway.name),
        relying_parties.login_conflicts(host),
    )
    servers = server_certificates.servers_of_host(
        ask,
        gateway,
        hostname,
        host.certificates,
        lambda name: ask.entry(all_virtual_hosts, gateway, key=(number, name)) is not None,
    )
    generated = write_server(port, host, context, servers)
    file = File.make(names.server_file(number, hostname), generated.text)
    unsupported = (*generated.unsupported, *sessionless)
    if port.tls not in server_tls.DEFAULT_SETTINGS and not context.capabilities.versions_by_sni:
        settings = server_tls.unsupported_versions(number, port.tls)
        origin = gateway_origin(gateway.name)
        unsupported += tuple(served_without(origin, setting) for setting in settings)
    return Fragment((file,), unsupported, generated.needs)


def _trace_context(
    edge: DataPlaneSettings, able: NginxCapabilities, gateway: str
) -> TraceContext | None:
    export = able.exported(edge.traces)
    return TraceContext(gateway, export.attributes) if export is not None else None


def default_files(ask: Ask, gateway: GatewaySource) -> Table[int, Fragment[File]]:
    """Return the files of the servers for unknown hostnames."""
    return ask.map_keys(_default_file, _ports, gateway, failed_fragment)


def _default_file(ask: Ask, gateway: GatewaySource, number: int) -> Fragment[File] | None:
    port = ask.entry(_ports, gateway, key=number)
    if port is None or ask.entry(all_virtual_hosts, gateway, key=(number, "")) is not None:
        return None
    by_sni = port.protocol != "HTTPS" or capabilities(ask, gateway).versions_by_sni
    text = default_server(port, versions_by_sni=by_sni)
    return Fragment((File.make(names.default_file(number), text),))


def names_by_sni_of_ports(ask: Ask, gateway: GatewaySource) -> tuple[Directive, ...]:
    """Return, for each HTTPS port, the map from SNI to the listener that it belongs to."""
    listeners = ask(_listeners, gateway)
    return tuple(
        names_by_sni(port, (name for _, name in entries_of_port(listeners, port.number)))
        for port in ask(_ports, gateway).values()
        if port.protocol == "HTTPS"
    )


def _listeners(ask: Ask, gateway: GatewaySource) -> Table[PortHostname, bool]:
    """Return the listeners that have virtual hosts, by port and hostname."""
    return ask.group_by(
        ask(all_virtual_hosts, gateway), lambda key, host: [(key[0], host.listener)], presence
    )


def needs(ask: Ask, gateway: GatewaySource) -> Table[Need, bool]:
    """Return what virtual hosts need beside their own files."""
    return ask.group_by(ask(server_files, gateway), lambda _, fragment: fragment.needs, presence)


def needs_of_kind(ask: Ask, gateway: GatewaySource, kind: str) -> Table[Need, bool]:
    """Return the needs of one kind."""
    return ask(needs, gateway).between((kind, "", None), (f"{kind}\0", "", None))


def shared_upstreams(ask: Ask, gateway: GatewaySource) -> Table[Need, bool]:
    """Return the upstreams that routes need beside those of clusters."""
    return ask(needs_of_kind, gateway, UPSTREAM)


def shared_upstream_files(ask: Ask, gateway: GatewaySource) -> Table[Need, Fragment[File]]:
    """Return the files of the upstreams that routes need beside those of clusters."""
    return ask.map_keys(_shared_upstream_files, shared_upstreams, gateway, failed_fragment)


def _shared_upstream_files(ask: Ask, gateway: GatewaySource, key: Need) -> Fragment[File] | None:
    _, name, upstream = key
    clusters = Clusters(ask, gateway)
    shares = [
        (cluster, weight)
        for share, weight in upstream.shares
        if (cluster := clusters.get(share)) is not None and cluster.endpoints
    ]
    if len(shares) < len(upstream.shares):
        # The change that removes a cluster, or its endpoints, removes this upstream, too.
        return None
    return Fragment(upstreams.upstream_files(capabilities(ask, gateway), name, shares, upstream.by))
