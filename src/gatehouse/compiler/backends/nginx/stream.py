"""L4 listeners: TCP, UDP, and TLS by SNI, with passthrough or termination.

On a TLS port, a virtual server per hostname (NGINX 1.25.5) reads the handshake without consuming
it. It forwards the connection, or passes it to a listening socket that terminates TLS. Connections
with an unknown hostname are closed without a response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gatehouse.compiler.backends.nginx import (
    data_plane_settings,
    names,
    quoting,
    weighted_upstreams,
)
from gatehouse.compiler.backends.nginx.backend_protocol import tls_directives
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple, write
from gatehouse.compiler.backends.nginx.upstreams import Shares
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster
from gatehouse.compiler.ir.settings import DataPlaneSettings

IDLE = "1h"
"""Timeout of connections without traffic."""

UDP_IDLE = "30s"

Clusters = Mapping[str, Cluster]


class Ports(msgspec.Struct, frozen=True):
    """Addresses of a stream server, and of the listening sockets that it passes connections to."""

    bind_address: str
    terminating: int
    """Port for TLS termination."""
    https: int = 0
    """Port of the HTTPS listener that shares the port; 0: none."""
    https_names: tuple[str, ...] = ()
    edge: DataPlaneSettings = DataPlaneSettings()
    status_zones: bool = False

    def status_zone(self, port: int, name: str) -> list[Directive]:
        """Return the directive for NGINX Plus metrics of a server."""
        zone = quoting.literal(names.status_zone(port, name))
        return [simple("status_zone", zone)] if self.status_zones else []

    def listens(self, port: int, *words: str) -> list[Directive]:
        """Return the directives that listen for clients on a port."""
        words = (*words, *data_plane_settings.proxied(self.edge)) if "udp" not in words else words
        where = data_plane_settings.addresses(self.edge, self.bind_address, port)
        return [simple("listen", each, *words) for each in where]

    def inside(self, port: int) -> list[str]:
        """Return the addresses of an internal port that connections are passed to."""
        return data_plane_settings.addresses(self.edge, self.bind_address or "127.0.0.1", port)


def stream(listener: ir.L4Listener, ports: Ports, clusters: Clusters) -> str:
    """Write the file of a port. Raises InvalidValueError."""
    nodes: list[Directive] = []
    if listener.protocol != "TLS":
        for host in listener.hosts:
            nodes += _plain(listener, host, ports, clusters)
        return write(nodes)
    if all(host.hostname for host in listener.hosts) and "" not in ports.https_names:
        nodes.append(_preread(listener, ports, "", [simple("return", '""')]))
    for host in listener.hosts:
        nodes += _by_name(listener, host, ports, clusters)
    for name in ports.https_names:
        passed = simple("pass", *ports.inside(ports.https))
        nodes.append(_preread(listener, ports, name, [passed]))
    return write(nodes)


def _plain(
    listener: ir.L4Listener, host: ir.L4Host, ports: Ports, clusters: Clusters
) -> list[Directive]:
    udp = listener.protocol == "UDP"
    chosen = _target(f"{listener.port}/{listener.protocol}", host, clusters)
    listens = ports.listens(listener.port, *(("udp", "reuseport") if udp else ()))
    idle = simple("proxy_timeout", UDP_IDLE if udp else IDLE)
    status_zone = ports.status_zone(listener.port, listener.protocol.lower())
    return [*chosen.definitions, block("server", (), [*listens, *status_zone, idle, *chosen.inner])]


def _by_name(
    listener: ir.L4Listener, host: ir.L4Host, ports: Ports, clusters: Clusters
) -> list[Directive]:
    chosen = _target(f"{listener.port}/{host.hostname}", host, clusters)
    idle = simple("proxy_timeout", IDLE)
    if not host.certificates or not host.backends:
        server = _preread(listener, ports, host.hostname, [idle, *chosen.inner])
        return [*chosen.definitions, server]
    inside = ports.inside(ports.terminating)
    onward = _preread(listener, ports, host.hostname, [simple("pass", *inside)])
    default = () if host.hostname else ("default_server",)
    ended = block("server", (), [
        *(simple("listen", each, "ssl", *default) for each in inside),
        simple("server_name", quoting.literal(host.hostname)),
        *_certificates(host),
        idle,
        *chosen.inner,
    ])  # fmt: skip
    return [*chosen.definitions, onward, ended]


def _preread(
    listener: ir.L4Listener, ports: Ports, name: str, inner: Sequence[Directive]
) -> Directive:
    return block("server", (), [
        *ports.listens(listener.port, *(() if name else ("default_server",))),
        simple("server_name", quoting.literal(name)),
        *ports.status_zone(listener.port, name),
        simple("ssl_preread", "on"),
        *inner,
    ])  # fmt: skip


def _certificates(host: ir.L4Host) -> list[Directive]:
    directives: list[Directive] = [simple("ssl_protocols", "TLSv1.2", "TLSv1.3")]
    for certificate in host.certificates:
        for directive, kind in (("ssl_certificate", "crt"), ("ssl_certificate_key", "key")):
            directives.append(simple(directive, names.certificate_file(certificate, kind)))
    return directives


class _Target(msgspec.Struct, frozen=True):
    inner: tuple[Directive, ...]
    definitions: tuple[Directive, ...] = ()


def _target(scope: str, host: ir.L4Host, clusters: Clusters) -> _Target:
    """Return the directives that forward: to a weighted upstream, or randomly if shares are
    rejected."""
    served = [b for b in host.backends if clusters[b.cluster].endpoints]
    if not served:
        return _Target((simple("return", '""'),))
    ends = [clusters[backend.cluster] for backend in served]
    secure = [*tls_directives("proxy", ends[0])]
    if secure:
        secure.insert(0, simple("proxy_ssl", "on"))
    sent, definitions = _sent(scope, host, served, clusters)
    if host.sources:
        allowed, listed = names.variable(scope, "source"), names.variable(scope, "listed")
        ranges = [simple(quoting.literal(each), "1") for each in host.sources]
        chosen = [simple("1", sent), simple("default", '""')]
        definitions += (
            block("geo", (f"${allowed}",), [simple("default", '""'), *ranges]),
            block("map", (f"${allowed}", f"${listed}"), chosen),
        )
        sent = f"${listed}"
    return _Target((*secure, simple("proxy_pass", sent)), definitions)


def _sent(
    scope: str,
    host: ir.L4Host,
    served: Sequence[ir.L4Backend],
    clusters: Clusters,
) -> tuple[str, tuple[Directive, ...]]:
    """Return the destination of connections, and its definitions."""
    if len(served) == len(host.backends) and not host.rejected:
        return quoting.word(upstream_name(host, clusters)), ()
    variable = names.variable(scope, "split")
    shares = [
        (quoting.word(backend.cluster) if backend in served else '""', backend.weight)
        for backend in host.backends
    ]
    if host.rejected:
        shares.append(('""', host.rejected))
    rows = weighted_upstreams.split_rows(shares)
    key = '"$remote_addr$remote_port$connection$msec"'
    return f"${variable}", (block("split_clients", (key, f"${variable}"), rows),)


def upstream_name(host: ir.L4Host, clusters: Clusters) -> str:
    """Return the upstream of all backends of a host."""
    served = [b for b in host.backends if clusters[b.cluster].endpoints]
    if len(served) == 1:
        return served[0].cluster
    return f"s-{names.digest(*(f'{b.cluster}={b.weight}' for b in served))}"


def used(listener: ir.L4Listener, clusters: Clusters) -> list[Cluster]:
    """Return the clusters that connections of a port may go to."""
    candidates = [clusters.get(each.cluster) for host in listener.hosts for each in host.backends]
    return [cluster for cluster in candidates if cluster is not None]


def upstreams(listeners: Iterable[ir.L4Listener], clusters: Clusters) -> dict[str, Shares]:
    """Return the upstreams of L4 listeners, by name."""
    by_name: dict[str, Shares] = {}
    for listener in listeners:
        for host in listener.hosts:
            served = [b for b in host.backends if clusters[b.cluster].endpoints]
            for backend in served:
                name = backend.cluster
                by_name[name] = [(clusters[name], 1)]
            if len(served) > 1:
                name = upstream_name(host, clusters)
                by_name[name] = [(clusters[b.cluster], b.weight) for b in served]
    return by_name


def stream_conf(edge: DataPlaneSettings, zone: Sequence[Directive] = ()) -> str:
    """Write the file that the main configuration includes in ``stream``.

    ``zone``: the zone of upstreams that resolve names, if any.
    """
    return write([
        simple("server_names_hash_max_size", "65536"),
        simple("server_names_hash_bucket_size", "512"),
        simple("variables_hash_max_size", "65536"),
        simple("preread_timeout", "10s"),
        simple("proxy_connect_timeout", "5s"),
        simple("ssl_session_timeout", "10m"),
        *data_plane_settings.stream(edge),
        *zone,
        simple("include", "gatehouse/stream-upstreams/*.conf"),
        simple("include", "gatehouse/streams/*.conf"),
    ])  # fmt: skip
