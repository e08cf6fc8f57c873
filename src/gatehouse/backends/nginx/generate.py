"""The build plan: which files a gateway has, each made again only when what it shows changed."""

from __future__ import annotations

import msgspec

from gatehouse.backends.nginx import names
from gatehouse.backends.nginx.actions import Context
from gatehouse.backends.nginx.base import http_conf
from gatehouse.backends.nginx.capabilities import Capabilities
from gatehouse.backends.nginx.servers import (
    Port,
    Unsupported,
    default_server,
    names_by_sni,
    server,
)
from gatehouse.backends.nginx.upstreams import upstream
from gatehouse.bundle import Bundle, File
from gatehouse.ir import gateway as ir_gateway
from gatehouse.ir import http as ir
from gatehouse.query import IdentityMemo


class Generated(msgspec.Struct, frozen=True):
    """A bundle, and what of the IR this NGINX cannot do: route names and why."""

    bundle: Bundle
    unsupported: Unsupported = ()


class _Rendered(msgspec.Struct, frozen=True):
    host: ir.VirtualHost
    port: Port
    uses: frozenset[str]
    empty: frozenset[str]
    file: File
    unsupported: Unsupported


class Generator:
    """Generates one gateway's files again and again; the result depends on the input alone."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._hosts: dict[tuple[int, str], _Rendered] = {}
        self._upstreams: IdentityMemo[ir.Cluster, File] = IdentityMemo()
        self._certificates: IdentityMemo[ir_gateway.Certificate, tuple[File, ...]] = IdentityMemo()

    def generate(self, gateway: ir_gateway.Gateway) -> Generated:
        """Give everything that NGINX needs to serve ``gateway``."""
        clusters = {cluster.name: cluster for cluster in gateway.clusters}
        empty = frozenset(name for name, cluster in clusters.items() if not cluster.endpoints)
        files: list[File] = []
        unsupported: list[tuple[str, str]] = []
        sni_maps = []
        rendered: dict[tuple[int, str], _Rendered] = {}
        for listener in gateway.listeners:
            port = Port(listener.port, listener.protocol, gateway.bind_address)
            if all(host.hostname for host in listener.virtual_hosts):
                files.append(File.make(names.default_file(port.number), default_server(port)))
            if listener.protocol == "HTTPS":
                sni_maps.append(names_by_sni(port, listener))
            for host in listener.virtual_hosts:
                found = self._host(port, host, clusters, empty)
                rendered[(port.number, host.hostname)] = found
                files.append(found.file)
                unsupported += found.unsupported
        self._hosts = rendered
        files.append(File.make(f"{names.ROOT}/http.conf", http_conf(self._capabilities, sni_maps)))
        files += [
            self._upstreams.get(cluster, _upstream_file)
            for cluster in gateway.clusters
            if cluster.endpoints
        ]
        for certificate in gateway.certificates:
            files += self._certificates.get(certificate, _certificate_files)
        self._upstreams.sweep()
        self._certificates.sweep()
        return Generated(Bundle(files), tuple(unsupported))

    def _host(
        self,
        port: Port,
        host: ir.VirtualHost,
        clusters: dict[str, ir.Cluster],
        empty: frozenset[str],
    ) -> _Rendered:
        known = self._hosts.get((port.number, host.hostname))
        # A cluster without endpoints answers 503 where it is used, so it matters there.
        if (
            known is not None
            and known.host is host
            and known.port == port
            and known.empty == known.uses & empty
        ):
            return known
        scope = f"{port.number}/{host.hostname}"
        written = server(port, host, Context(scope, clusters, self._capabilities))
        file = File.make(names.server_file(port.number, host.hostname), written.text)
        uses = _uses(host)
        return _Rendered(host, port, uses, uses & empty, file, written.unsupported)


def _uses(host: ir.VirtualHost) -> frozenset[str]:
    return frozenset(
        backend.cluster
        for route in host.routes
        if isinstance(route.action, ir.Forward)
        for backend in route.action.backends
    )


def _upstream_file(cluster: ir.Cluster) -> File:
    return File.make(names.upstream_file(cluster.name), upstream(cluster))


def _certificate_files(certificate: ir_gateway.Certificate) -> tuple[File, ...]:
    chain = names.certificate_file(certificate.name, "crt")
    key = names.certificate_file(certificate.name, "key")
    return (
        File.make(chain, certificate.chain),
        File.make(key, certificate.key.reveal(), secret=True),
    )
