"""The build plan: which files a gateway has, each made again only when what it shows changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gatehouse.backends.nginx import (
    authenticating,
    connecting,
    mixing,
    names,
    rates,
    sessions,
    snippets,
    streams,
    upstreams,
    usage,
)
from gatehouse.backends.nginx.base import http_conf
from gatehouse.backends.nginx.capabilities import Capabilities
from gatehouse.backends.nginx.forwarding import cluster_names
from gatehouse.backends.nginx.quoting import UnwritableError
from gatehouse.backends.nginx.served import Context
from gatehouse.backends.nginx.servers import (
    Port,
    Unsupported,
    default_server,
    names_by_sni,
    server,
)
from gatehouse.backends.nginx.tree import Directive, write
from gatehouse.bundle import Bundle, File
from gatehouse.ir import gateway as ir_gateway
from gatehouse.ir import http as ir
from gatehouse.ir.settings import UpstreamSettings
from gatehouse.query import IdentityMemo


class Generated(msgspec.Struct, frozen=True):
    """A bundle, and what of the IR this NGINX cannot do: route names or ``port/…``, and why."""

    bundle: Bundle
    unsupported: Unsupported = ()


Seen = dict[str, tuple[bool, str, ir.BackendTls | None, UpstreamSettings] | None]
"""What of each cluster shows where it is used: whether it has endpoints, how it is spoken to."""


class _Rendered(msgspec.Struct, frozen=True):
    host: ir.VirtualHost
    port: Port
    clusters: Seen
    files: tuple[File, ...]
    zones: tuple[Directive, ...]
    unsupported: Unsupported


class Generator:
    """Generates one gateway's files again and again; the result depends on the input alone."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._hosts: dict[tuple[int, str], _Rendered] = {}
        self._upstreams: IdentityMemo[ir.Cluster, tuple[File, ...]] = IdentityMemo()
        self._certificates: IdentityMemo[ir_gateway.Certificate, tuple[File, ...]] = IdentityMemo()

    def generate(self, gateway: ir_gateway.Gateway) -> Generated:
        """Give everything that NGINX needs to serve ``gateway``."""
        clusters = {cluster.name: cluster for cluster in gateway.clusters}
        files: list[File] = []
        unsupported: list[tuple[str, str]] = []
        maps = []
        rendered: dict[tuple[int, str], _Rendered] = {}
        hidden = _hidden(gateway)
        for listener in gateway.listeners:
            port = Port(
                listener.port, listener.protocol, gateway.bind_address,
                hidden.get(listener.port, 0), listener.client_validation, gateway.edge,
            )  # fmt: skip
            if all(host.hostname for host in listener.virtual_hosts):
                files.append(File.make(names.default_file(port.number), default_server(port)))
            if listener.protocol == "HTTPS":
                maps.append(names_by_sni(port, listener))
            for host in listener.virtual_hosts:
                found = self._host(port, host, clusters)
                rendered[(port.number, host.hostname)] = found
                files += found.files
                unsupported += found.unsupported
        self._hosts = rendered
        files += self._around(gateway, unsupported)
        maps += dict.fromkeys(zone for each in rendered.values() for zone in each.zones)
        zone = self._zone(names.ZONE, gateway)
        base = http_conf(self._capabilities, maps, hidden, gateway.edge, zone)
        files.append(File.make(f"{names.ROOT}/http.conf", base))
        for cluster in gateway.clusters:
            if cluster.endpoints and cluster.protocol not in ("tcp", "udp"):
                files += self._upstreams.get(cluster, self._cluster_files)
        files += self._shared_files(gateway, clusters)
        files += self._streams(gateway, clusters, hidden, unsupported)
        if self._capabilities.connectors:
            files += connecting.files(gateway.clusters)
        files += authenticating.files(gateway, self._capabilities)
        for certificate in gateway.certificates:
            files += self._certificates.get(certificate, _certificate_files)
        files += [File.make(names.trust_file(bundle.name), bundle.pem) for bundle in gateway.trust]
        files += [
            File.make(names.secret_file(each.name), each.content.reveal(), secret=True)
            for each in gateway.secrets
        ]
        self._upstreams.sweep()
        self._certificates.sweep()
        return Generated(Bundle(files), tuple(unsupported))

    def _around(
        self, gateway: ir_gateway.Gateway, unsupported: list[tuple[str, str]]
    ) -> list[File]:
        """Give the files for the contexts around all servers."""
        main = _snippet_texts(gateway, "main", unsupported)
        if not any(usage.DIRECTIVE in snippets.outermost(text) for text in main):
            # Once: whoever writes this block writes it whole.
            own = usage.directives(gateway.usage, self._capabilities)
            main = [*([write(own).removesuffix("\n")] if own else []), *main]
            why = usage.missing(gateway.usage, self._capabilities)
            unsupported += [("edge", each) for each in why]
        found = {
            names.MAIN_SNIPPETS: main,
            names.HTTP_SNIPPETS: _snippet_texts(gateway, "http", unsupported),
        }
        return [File.make(path, _lines(texts)) for path, texts in found.items() if texts]

    def _streams(
        self,
        gateway: ir_gateway.Gateway,
        clusters: dict[str, ir.Cluster],
        hidden: dict[int, int],
        unsupported: list[tuple[str, str]],
    ) -> list[File]:
        why = "NGINX does not choose by the destination in a PROXY header; Envoy does"
        unsupported += [(f"port/{each.port}", why) for each in gateway.tunnels]
        if not gateway.streams:
            return []
        if not self._capabilities.stream_servers:
            why = "TCP, UDP and TLS listeners need NGINX 1.25.5 or newer"
            unsupported += [(f"port/{each.port}", why) for each in gateway.streams]
            return []
        https = {each.port: each for each in gateway.listeners}
        base = streams.stream_conf(gateway.edge, self._zone(names.STREAM_ZONE, gateway))
        files = [File.make(f"{names.ROOT}/stream.conf", base)]
        for listener in gateway.streams:
            shared = https.get(listener.port) if listener.protocol == "TLS" else None
            ports = streams.Ports(
                gateway.bind_address,
                _free(gateway, listener.port, 1),
                hidden.get(listener.port, 0),
                tuple(host.hostname for host in shared.virtual_hosts) if shared else (),
                gateway.edge,
                self._capabilities.status_zones,
            )
            try:
                connecting.check(self._capabilities, streams.used(listener, clusters))
                text = streams.stream(listener, ports, clusters)
            except UnwritableError as error:
                unsupported.append((f"port/{listener.port}", str(error)))
                continue
            files.append(File.make(names.stream_file(listener.port, listener.protocol), text))
        for name, shares in streams.upstreams(gateway, clusters).items():
            text = upstreams.stream_upstream(self._capabilities, name, shares)
            files.append(File.make(names.stream_upstream_file(name), text))
            files += upstreams.endpoints_files(self._capabilities, name, shares)
        return files

    def _zone(self, name: str, gateway: ir_gateway.Gateway) -> list[Directive]:
        if not self._capabilities.resolving_upstreams:
            return []
        # Twice: an upstream of several clusters, or of a session, has its own copies.
        count = 2 * sum(len(cluster.endpoints) for cluster in gateway.clusters)
        return [upstreams.zone(name, count)]

    def _upstream(self, name: str, shares: upstreams.Shares, by: str = "") -> tuple[File, ...]:
        text = upstreams.upstream(self._capabilities, name, shares, by=by)
        apart = upstreams.endpoints_files(self._capabilities, name, shares)
        return (File.make(names.upstream_file(name), text), *apart)

    def _cluster_files(self, cluster: ir.Cluster) -> tuple[File, ...]:
        return self._upstream(cluster.name, [(cluster, 1)])

    def _shared_files(
        self, gateway: ir_gateway.Gateway, clusters: dict[str, ir.Cluster]
    ) -> list[File]:
        """Give the upstreams of several backends, and those whose endpoints sessions choose."""
        found: dict[str, tuple[File, ...]] = {}
        for name, action in _forwards(gateway):
            for common, shares in mixing.upstreams(action, clusters).items():
                found[common] = self._upstream(common, shares)
            if action.persistence is None:
                continue
            variable = names.session_variable(action.persistence, name)
            for backend in action.backends:
                cluster = clusters.get(backend.cluster)
                if cluster is not None and cluster.endpoints:
                    own = sessions.upstream_name(cluster.name, action.persistence, name)
                    found[own] = self._upstream(own, [(cluster, 1)], by=variable)
        return [file for files in found.values() for file in files]

    def _host(self, port: Port, host: ir.VirtualHost, clusters: dict[str, ir.Cluster]) -> _Rendered:
        known = self._hosts.get((port.number, host.hostname))
        same = known is not None and known.host is host and known.port == port
        # What a cluster shows may change while the routes that name it stay the same.
        if same and known is not None and known.clusters == _seen(known.clusters, clusters):
            return known
        scope = f"{port.number}/{host.hostname}"
        context = Context(
            scope, clusters, self._capabilities, host.settings.client, port.edge.untold
        )
        written = server(port, host, context)
        file = File.make(names.server_file(port.number, host.hostname), written.text)
        zones = tuple(rates.zones(route.settings.rates for route in host.routes))
        return _Rendered(
            host, port, _seen(_uses(host), clusters), (file,), zones, written.unsupported
        )


def _uses(host: ir.VirtualHost) -> frozenset[str]:
    return frozenset(
        name
        for route in host.routes
        if isinstance(route.action, ir.Forward)
        for name in cluster_names(route.action)
    )


def _seen(used: Iterable[str], clusters: Mapping[str, ir.Cluster]) -> Seen:
    found = {name: clusters.get(name) for name in used}
    return {
        name: None
        if cluster is None
        else (bool(cluster.endpoints), cluster.protocol, cluster.tls, cluster.settings)
        for name, cluster in found.items()
    }


def _hidden(gateway: ir_gateway.Gateway) -> dict[int, int]:
    """Give, for each HTTPS port shared with TLS listeners, the port where HTTPS really listens."""
    shared = {each.port for each in gateway.streams if each.protocol == "TLS"}
    return {
        each.port: _free(gateway, each.port, 0) for each in gateway.listeners if each.port in shared
    }


def _free(gateway: ir_gateway.Gateway, port: int, kind: int) -> int:
    """Give a port of this Gateway's address that no listener has."""
    taken = {each.port for each in gateway.listeners} | {each.port for each in gateway.streams}
    ports = sorted(taken)
    wanted = 40_000 + 2 * ports.index(port) + kind
    while wanted in taken:
        wanted += 2 * len(ports)
    return wanted


def _snippet_texts(
    gateway: ir_gateway.Gateway, context: str, unsupported: list[tuple[str, str]]
) -> list[str]:
    """Give what trusted users wrote for a context around all servers."""
    texts = []
    for snippet in gateway.snippets:
        try:
            texts += [each.text for each in snippets.within([snippet], context)]
        except UnwritableError as error:
            unsupported.append((f"policy/{snippet.name}", str(error)))
    return texts


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _forwards(gateway: ir_gateway.Gateway) -> Iterator[tuple[str, ir.Forward]]:
    """Give every route that forwards: its name, and how."""
    for listener in gateway.listeners:
        for host in listener.virtual_hosts:
            for route in host.routes:
                if isinstance(route.action, ir.Forward):
                    yield route.name, route.action


def _certificate_files(certificate: ir_gateway.Certificate) -> tuple[File, ...]:
    chain = names.certificate_file(certificate.name, "crt")
    key = names.certificate_file(certificate.name, "key")
    return (
        File.make(chain, certificate.chain),
        File.make(key, certificate.key.reveal(), secret=True),
    )
