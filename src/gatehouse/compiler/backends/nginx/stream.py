"""L4 listeners: TCP, UDP, and TLS by SNI, with passthrough or termination.

On a TLS port, a virtual server per hostname (NGINX 1.25.5) reads the handshake without consuming
it. It forwards the connection, or passes it to a listening socket that terminates TLS. Connections
with an unknown hostname are closed without a response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gatehouse.compiler.backends.nginx import (
    connection_log,
    data_plane_settings,
    names,
    quoting,
    server_tls,
    weighted_upstreams,
)
from gatehouse.compiler.backends.nginx.backend_protocol import tls_directives
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    map_block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.server_certificates import (
    ServerNames,
    certificate_directives,
)
from gatehouse.compiler.backends.nginx.upstreams import Shares
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.http import Cluster
from gatehouse.compiler.ir.server_tls import ServerTls, all_versions
from gatehouse.compiler.ir.settings import DataPlaneSettings

_IDLE = "1h"
"""Timeout of connections without traffic."""

_UDP_IDLE = "30s"

_Clusters = Mapping[str, Cluster]


_KEEPALIVE = "so_keepalive=55s:55s:3"
"""TCP keepalive of accepted connections: idle time, pause between probes and number of probes, as
on Envoy."""


class StreamPorts(msgspec.Struct, frozen=True):
    """Addresses of a stream server, and of the listening sockets that it passes connections to."""

    bind_address: str
    terminating: int
    """Port for TLS termination."""
    https: int = 0
    """Port of the HTTPS listener that shares the port; 0: none."""
    https_names: tuple[str, ...] = ()
    edge: DataPlaneSettings = DataPlaneSettings()
    status_zones: bool = False
    versions_by_sni: bool = True
    """True if the server that the SNI selects decides on the TLS version."""

    def status_zone(self, port: int, name: str) -> list[Directive]:
        """Return the directive for NGINX Plus metrics of a server."""
        zone = quoting.quote_literal(names.status_zone(port, name))
        return [simple_directive("status_zone", zone)] if self.status_zones else []

    def listens(self, port: int, *words: str) -> list[Directive]:
        """Return the directives that listen for clients on a port."""
        words = (*words, *data_plane_settings.proxied(self.edge)) if "udp" not in words else words
        where = data_plane_settings.addresses(self.edge, self.bind_address, port)
        return [simple_directive("listen", endpoint, *words) for endpoint in where]

    def inside(self, port: int) -> list[str]:
        """Return the addresses of an internal port that connections are passed to."""
        return data_plane_settings.addresses(self.edge, self.bind_address or "127.0.0.1", port)


def stream_server_file(
    listener: ir.L4Listener,
    ports: StreamPorts,
    clusters: _Clusters,
    servers: Mapping[str, Sequence[ServerNames]],
) -> str:
    """Write the file of a port. Raises InvalidValueError.

    ``servers``: the servers of each hostname that terminate TLS.
    """
    targets = [(host, _target(_scope(listener, host), host, clusters)) for host in listener.hosts]
    logged = [
        connection_log.logged_host(host, clusters, target.destination) for host, target in targets
    ]
    nodes: list[Directive] = [connection_log.host_map(listener, logged)]
    if listener.protocol != "TLS":
        for _, target in targets:
            nodes += _plain(listener, target, ports)
        return format_directives(nodes)
    if all(host.hostname for host in listener.hosts) and "" not in ports.https_names:
        nodes.append(_preread(listener, ports, "", [simple_directive("return", '""')]))
    for host, target in targets:
        nodes += _by_name(listener, host, ports, target, servers[host.hostname])
    for name in ports.https_names:
        passed = simple_directive("pass", *ports.inside(ports.https))
        nodes.append(_preread(listener, ports, name, [passed]))
    return format_directives(nodes)


def _scope(listener: ir.L4Listener, host: ir.L4Host) -> str:
    """Return the scope of the names of a host's variables."""
    name = host.hostname if listener.protocol == "TLS" else listener.protocol
    return f"{listener.port}/{name}"


def _plain(listener: ir.L4Listener, chosen: _Target, ports: StreamPorts) -> list[Directive]:
    udp = listener.protocol == "UDP"
    listens = ports.listens(listener.port, *(("udp", "reuseport") if udp else (_KEEPALIVE,)))
    idle = simple_directive("proxy_timeout", _UDP_IDLE if udp else _IDLE)
    status_zone = ports.status_zone(listener.port, listener.protocol.lower())
    return [*chosen.definitions, block("server", (), [*listens, *status_zone, idle, *chosen.inner])]


def _by_name(
    listener: ir.L4Listener,
    host: ir.L4Host,
    ports: StreamPorts,
    chosen: _Target,
    servers: Iterable[ServerNames],
) -> list[Directive]:
    idle = simple_directive("proxy_timeout", _IDLE)
    if not host.certificates or not host.backends:
        server = _preread(listener, ports, host.hostname, [idle, *chosen.inner])
        return [*chosen.definitions, server]
    inside = ports.inside(ports.terminating)
    common = () if ports.versions_by_sni else terminated_tls(listener)
    tls = [
        *server_tls.version_directives(all_versions(common or (host.tls,)), inherited=()),
        *server_tls.cipher_directives(host.tls),
    ]
    destination, guard = inside, list[Directive]()
    if server_tls.needs_guard(host.tls, common, versions_by_sni=ports.versions_by_sni):
        variable = f"${names.variable(_scope(listener, host), 'newest')}"
        rows = [simple_directive(f'"{server_tls.NEWEST}"', *inside)]
        guard = [block("map", ("$ssl_preread_protocol", variable), rows)]
        destination = [variable]
    onward = _preread(listener, ports, host.hostname, [simple_directive("pass", *destination)])
    ended = [_terminating(inside, server, [*tls, idle, *chosen.inner]) for server in servers]
    return [*chosen.definitions, *guard, onward, *ended]


def terminated_tls(listener: ir.L4Listener) -> tuple[ServerTls, ...]:
    """Return the distinct TLS settings of the hosts whose TLS NGINX terminates."""
    ended = {host.tls for host in listener.hosts if host.certificates and host.backends}
    return tuple(sorted(ended))


def _terminating(
    inside: Iterable[str], server: ServerNames, inner: Iterable[Directive]
) -> Directive:
    """Return a server that terminates TLS."""
    default = ("default_server",) if "" in server.hostnames else ()
    return block("server", (), [
        *(simple_directive("listen", endpoint, "ssl", *default) for endpoint in inside),
        simple_directive("server_name", *map(quoting.quote_literal, server.hostnames)),
        *certificate_directives(server.certificates),
        *inner,
    ])  # fmt: skip


def _preread(
    listener: ir.L4Listener, ports: StreamPorts, name: str, inner: Sequence[Directive]
) -> Directive:
    return block("server", (), [
        # NGINX permits the options of a socket in one server.
        *ports.listens(listener.port, *(() if name else ("default_server", _KEEPALIVE))),
        simple_directive("server_name", quoting.quote_literal(name)),
        *ports.status_zone(listener.port, name),
        simple_directive("ssl_preread", "on"),
        *inner,
    ])  # fmt: skip


class _Target(msgspec.Struct, frozen=True):
    inner: tuple[Directive, ...]
    definitions: tuple[Directive, ...] = ()
    destination: str = ""
    """For the access log: a variable, a reason why there is no destination, or empty."""


def _target(scope: str, host: ir.L4Host, clusters: _Clusters) -> _Target:
    """Return the directives that forward: to a weighted upstream, or randomly if shares are
    rejected."""
    served = [b for b in host.backends if clusters[b.cluster].endpoints]
    if not served:
        reason = LocalReason.NO_ENDPOINT if host.backends else host.reason_without_backends
        closed = connection_log.local_destination(reason)
        return _Target((simple_directive("return", '""'),), destination=closed)
    ends = [clusters[backend.cluster] for backend in served]
    secure = [*tls_directives("proxy", ends[0])]
    if secure:
        secure.insert(0, simple_directive("proxy_ssl", "on"))
    sent, definitions = _sent(scope, host, served, clusters)
    if host.sources:
        allowed, listed = names.variable(scope, "source"), names.variable(scope, "listed")
        ranges = [simple_directive(quoting.quote_literal(source), "1") for source in host.sources]
        closed = connection_log.local_destination(LocalReason.NO_ROUTE)
        definitions += (
            block("geo", (f"${allowed}",), [simple_directive("default", '""'), *ranges]),
            map_block(f"${allowed}", f"${listed}", {"1": sent}, f'"{closed}"'),
        )
        sent = f"${listed}"
    destination = sent if sent.startswith("$") else ""
    if destination:
        sent = f"${names.variable(scope, 'sent')}"
        definitions += (_without_reasons(destination, sent),)
    return _Target((*secure, simple_directive("proxy_pass", sent)), definitions, destination)


def _without_reasons(destination: str, variable: str) -> Directive:
    """Define a variable that is the destination, and empty if that is a reason."""
    return map_block(destination, variable, {'"~^!"': '""'}, destination)


def _sent(
    scope: str,
    host: ir.L4Host,
    served: Sequence[ir.L4Backend],
    clusters: _Clusters,
) -> tuple[str, tuple[Directive, ...]]:
    """Return the destination of connections, and its definitions."""
    if len(served) == len(host.backends) and not host.rejected:
        return quoting.word(_upstream_name(host, clusters)), ()
    variable = names.variable(scope, "split")
    empty = f'"{connection_log.local_destination(LocalReason.NO_ENDPOINT)}"'
    shares = [
        (quoting.word(backend.cluster) if backend in served else empty, backend.weight)
        for backend in host.backends
    ]
    if host.rejected:
        closed = connection_log.local_destination(LocalReason.INVALID_ROUTE)
        shares.append((f'"{closed}"', host.rejected))
    rows = weighted_upstreams.split_rows(shares)
    key = '"$remote_addr$remote_port$connection$msec"'
    return f"${variable}", (block("split_clients", (key, f"${variable}"), rows),)


def _upstream_name(host: ir.L4Host, clusters: _Clusters) -> str:
    """Return the upstream of all backends of a host."""
    served = [b for b in host.backends if clusters[b.cluster].endpoints]
    if len(served) == 1:
        return served[0].cluster
    return f"s-{names.name_digest(*(f'{b.cluster}={b.weight}' for b in served))}"


def used(listener: ir.L4Listener, clusters: _Clusters) -> list[Cluster]:
    """Return the clusters that connections of a port may go to."""
    candidates = [
        clusters.get(backend.cluster) for host in listener.hosts for backend in host.backends
    ]
    return [cluster for cluster in candidates if cluster is not None]


def stream_upstreams(listeners: Iterable[ir.L4Listener], clusters: _Clusters) -> dict[str, Shares]:
    """Return the upstreams of L4 listeners, by name."""
    by_name: dict[str, Shares] = {}
    for listener in listeners:
        for host in listener.hosts:
            served = [b for b in host.backends if clusters[b.cluster].endpoints]
            for backend in served:
                name = backend.cluster
                by_name[name] = [(clusters[name], 1)]
            if len(served) > 1:
                name = _upstream_name(host, clusters)
                by_name[name] = [(clusters[b.cluster], b.weight) for b in served]
    return by_name


def stream_conf(
    edge: DataPlaneSettings, zone: Sequence[Directive] = (), logs: Sequence[str] = ()
) -> str:
    """Write the file that the main configuration includes in ``stream``.

    ``zone``: the zone of upstreams that resolve names, if any. ``logs``: files of the logs of
    connections.
    """
    return format_directives([
        # Before the first map: NGINX fixes these sizes at the first one.
        simple_directive("map_hash_max_size", "65536"),
        simple_directive("map_hash_bucket_size", "512"),
        simple_directive("server_names_hash_max_size", "65536"),
        simple_directive("server_names_hash_bucket_size", "512"),
        simple_directive("variables_hash_max_size", "65536"),
        simple_directive("preread_timeout", "10s"),
        simple_directive("proxy_connect_timeout", "5s"),
        simple_directive("proxy_socket_keepalive", "on"),
        simple_directive("ssl_session_timeout", "10m"),
        # A literal dollar sign: NGINX has no escape for it.
        block("geo", ("$gh_dollar",), (simple_directive("default", '"$"'),)),
        *data_plane_settings.stream_directives(edge),
        *zone,
        simple_directive("include", "gatehouse/stream-upstreams/*.conf"),
        simple_directive("include", "gatehouse/streams/*.conf"),
        *(simple_directive("include", path) for path in logs),
    ])  # fmt: skip
