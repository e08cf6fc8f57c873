"""Queries for the files of L4 listeners and of their upstreams."""

from __future__ import annotations

from gatehouse.compiler.backends.configuration import (
    ClusterReferences,
    Clusters,
    all_virtual_hosts,
    entries_of_port,
)
from gatehouse.compiler.backends.fragments import Fragment, entry_fragment, failed_fragment
from gatehouse.compiler.backends.nginx import (
    connection_log,
    external_names,
    names,
    server_certificates,
    stream,
    tls_connectors,
    upstreams,
)
from gatehouse.compiler.backends.source import GatewaySource, capabilities, gateway_configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.dataplane.file_set import File
from gatehouse.dataplane.origin import Origin, port_origin
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

_ListenerKey = tuple[int, str]
"""Port and protocol."""

Weights = tuple[tuple[str, int], ...]
"""Names of clusters with their weights."""


def l4_listeners(ask: Ask, gateway: GatewaySource) -> Table[_ListenerKey, ir.L4Listener]:
    """Return the L4 listeners that the proxy can serve."""
    if not capabilities(ask, gateway).stream_servers:
        return Table()
    streams = gateway_configuration(ask, gateway).l4_listeners
    return Table(((listener.port, listener.protocol), listener) for listener in streams)


def l4_files(ask: Ask, gateway: GatewaySource) -> Table[_ListenerKey, Fragment[File]]:
    """Return the files of all L4 listeners."""
    return ask.map_keys(_l4_file, l4_listeners, gateway, failed_fragment)


def _l4_file(ask: Ask, gateway: GatewaySource, key: _ListenerKey) -> Fragment[File] | None:
    number, protocol = key

    def files(listener: ir.L4Listener) -> list[File]:
        able, clusters = capabilities(ask, gateway), ClusterReferences(ask, gateway)
        used = stream.used(listener, clusters)
        tls_connectors.check_connector(able, used)
        external_names.check_external_names(able, used)
        own = {host.hostname for host in listener.hosts}
        servers = {
            host.hostname: server_certificates.servers_of_host(
                ask, gateway, host.hostname, host.certificates, own.__contains__
            )
            for host in listener.hosts
        }
        text = stream.stream_server_file(listener, ask(_ports, gateway, key), clusters, servers)
        return [File.make(names.l4_listener_file(number, protocol), text)]

    def origin(_: ir.L4Listener) -> Origin:
        return port_origin(gateway.name, number)

    return entry_fragment(ask, l4_listeners, gateway, key, files, origin)


def connection_log_files(ask: Ask, gateway: GatewaySource) -> tuple[File, ...]:
    """Return the files of the logs of connections; none if the agent reads no log.

    Listeners that cannot be generated have no variable, which the file must not use.
    """
    edge = gateway_configuration(ask, gateway).settings
    able = capabilities(ask, gateway)
    if not able.access_log:
        return ()
    listeners = ask(l4_listeners, gateway)
    served = [key for key, fragment in ask(l4_files, gateway).items() if fragment.items]
    logged = [
        connection_log.LoggedListener(
            port,
            protocol,
            ask(_ports, gateway, (port, protocol)).terminating
            if connection_log.terminates(listeners[port, protocol])
            else 0,
        )
        for port, protocol in served
    ]
    if not logged:
        return ()
    shared = File.make(
        names.CONNECTION_LOG, connection_log.shared_conf(logged, marks=able.failure_causes)
    )
    if edge.access_log is None:
        return (shared,)
    text = connection_log.connection_log_conf(logged, edge, gateway.name, marks=able.failure_causes)
    return (shared, File.make(names.STREAM_ACCESS_LOG, text))


def _ports(ask: Ask, gateway: GatewaySource, key: _ListenerKey) -> stream.StreamPorts:
    number, protocol = key
    configuration = gateway_configuration(ask, gateway)
    inside = internal_ports(configuration)
    shared = protocol == "TLS" and number in inside
    return stream.StreamPorts(
        configuration.bind_address,
        _free_port(configuration, number, 1),
        inside.get(number, 0),
        ask(_https_names, gateway, number) if shared else (),
        configuration.settings,
        capabilities(ask, gateway).status_zones,
        capabilities(ask, gateway).versions_by_sni,
    )


def _https_names(ask: Ask, gateway: GatewaySource, port: int) -> tuple[str, ...]:
    """Return the hostnames of an HTTPS port."""
    return tuple(hostname for _, hostname in entries_of_port(ask(all_virtual_hosts, gateway), port))


def l4_upstreams(ask: Ask, gateway: GatewaySource) -> Table[str, Weights]:
    """Return the upstreams of all L4 listeners by name."""
    clusters = ClusterReferences(ask, gateway)
    by_name = stream.stream_upstreams(ask(l4_listeners, gateway).values(), clusters)
    return Table(
        (name, tuple((cluster.name, weight) for cluster, weight in shares))
        for name, shares in by_name.items()
    )


def l4_upstream_files(ask: Ask, gateway: GatewaySource) -> Table[str, Fragment[File]]:
    """Return the files of the upstreams of all L4 listeners."""
    return ask.map_keys(_l4_upstream_files, l4_upstreams, gateway, failed_fragment)


def _l4_upstream_files(ask: Ask, gateway: GatewaySource, name: str) -> Fragment[File] | None:
    weights = ask.entry(l4_upstreams, gateway, key=name)
    if weights is None:
        return None
    able, clusters = capabilities(ask, gateway), Clusters(ask, gateway)
    shares = [(clusters[cluster], weight) for cluster, weight in weights]
    text = upstreams.stream_upstream(able, name, shares)
    file = File.make(names.stream_upstream_file(name), text)
    return Fragment((file, *upstreams.endpoints_files(able, name, shares)))


def internal_ports(gateway: ir.GatewayConfiguration) -> dict[int, int]:
    """Return, for each HTTPS port shared with TLS listeners, the port where HTTPS listens."""
    tls_ports = {
        l4_listener.port for l4_listener in gateway.l4_listeners if l4_listener.protocol == "TLS"
    }
    return {
        listener.port: _free_port(gateway, listener.port, 0)
        for listener in gateway.listeners
        if listener.port in tls_ports
    }


def _free_port(gateway: ir.GatewayConfiguration, port: int, kind: int) -> int:
    """Return a port of this Gateway's address that no listener uses."""
    taken = {listener.port for listener in gateway.listeners} | {
        l4_listener.port for l4_listener in gateway.l4_listeners
    }
    ports = sorted(taken)
    candidate = 40_000 + 2 * ports.index(port) + kind
    while candidate in taken:
        candidate += 2 * len(ports)
    return candidate
