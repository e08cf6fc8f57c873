"""Generator: builds all files of a gateway, reusing fragments whose inputs did not change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from functools import partial
from typing import Any

import msgspec

from gatehouse.compiler.backends.failures import reason
from gatehouse.compiler.backends.nginx import (
    auth_request,
    names,
    outer_contexts,
    tls_connectors,
    upstreams,
)
from gatehouse.compiler.backends.nginx import stream as passing
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.cluster_index import Clusters
from gatehouse.compiler.backends.nginx.directives import Directive
from gatehouse.compiler.backends.nginx.fragments import (
    ChangeTracker,
    Fragment,
    Fragments,
    cluster_key,
)
from gatehouse.compiler.backends.nginx.http_conf import http_conf
from gatehouse.compiler.backends.nginx.route_context import Context
from gatehouse.compiler.backends.nginx.servers import Port, default_server
from gatehouse.compiler.backends.nginx.virtual_hosts import Common, Hosts
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.dataplane.origin import of_port


class Generated(msgspec.Struct, frozen=True):
    """A file set, and the parts of the IR that are unsupported."""

    bundle: FileSet
    unsupported: tuple[Unsupported, ...] = ()


class Generator:
    """Generates the files of one gateway repeatedly. The result depends on the last input only."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._fragments = Fragments()
        self._clusters = Clusters()
        self._hosts: dict[int, Hosts] = {}
        self._trackers: dict[str, ChangeTracker[Any]] = {}
        """Named objects with files of their own, by kind."""
        self._rate_limit_zones: dict[Directive, None] = {}
        self._relying_parties: dict[Oidc, None] = {}
        """Needs of virtual hosts: rate limit zones, and OpenID Connect relying parties."""

    def generate(self, gateway: ir_gateway.Gateway) -> Generated:
        """Return all files that NGINX needs to serve ``gateway``."""
        new, stale_keys = self._clusters.follow(gateway.clusters)
        stale = self._fragments.users(stale_keys)
        internal_ports = _internal_ports(gateway)
        self._plan_hosts(gateway, internal_ports, stale)
        # The needs of virtual hosts are known once all of them are planned.
        self._plan_needs(stale)
        self._plan_clusters(new)
        self._plan_base(gateway, internal_ports)
        self._fragments.put("around", outer_contexts.fragment(gateway, self._capabilities))
        self._plan_streams(gateway, internal_ports, stale)
        connected = self._clusters.connected if self._capabilities.connectors else ()
        self._fragments.put_if_changed(
            "connectors", connected, partial(tls_connectors.files, connected)
        )
        self._plan_named("certificate", gateway.certificates, _certificate_files)
        self._plan_named("trust", gateway.trust, _trust_files)
        self._plan_named("secret", gateway.secrets, _secret_files)
        bundle, unsupported = self._fragments.finish()
        return Generated(bundle, unsupported)

    def _plan_hosts(
        self, gateway: ir_gateway.Gateway, internal_ports: dict[int, int], stale: Set[str]
    ) -> None:
        context = Context("", self._clusters.by_name, self._capabilities)
        for number in self._hosts.keys() - {each.port for each in gateway.listeners}:
            self._drop_hosts(number)
        for listener in gateway.listeners:
            port = Port(
                listener.port, listener.protocol, gateway.bind_address,
                internal_ports.get(listener.port, 0), listener.client_validation, gateway.edge,
            )  # fmt: skip
            hosts = self._hosts.get(port.number)
            if hosts is None or hosts.port != port:
                self._drop_hosts(port.number)
                hosts = self._hosts[port.number] = Hosts(self._fragments, port)
            hosts.plan(listener.virtual_hosts, context, stale)
            self._fragments.put_if_changed(
                f"default/{port.number}", (port, hosts.has_default), partial(_default, hosts)
            )

    def _drop_hosts(self, number: int) -> None:
        hosts = self._hosts.pop(number, None)
        if hosts is not None:
            hosts.drop()
            self._fragments.drop(f"default/{number}")

    def _plan_needs(self, stale: Set[str]) -> None:
        """Plan the needs of virtual hosts, which they may share."""
        fresh, gone = self._fragments.changed_needs()
        for need in gone:
            if isinstance(need, Common):
                self._fragments.drop(f"common/{need.name}")
            self._rate_limit_zones.pop(need, None)
            self._relying_parties.pop(need, None)
        for need in fresh:
            if isinstance(need, Common):
                self._fragments.put(f"common/{need.name}", self._common(need))
            elif isinstance(need, Oidc):
                self._relying_parties[need] = None
            else:
                self._rate_limit_zones[need] = None
        new = {need for need in fresh if isinstance(need, Common)}
        for key in stale:
            known = self._fragments.get(key)
            common = known.inputs[0] if known is not None and known.inputs else None
            if isinstance(common, Common) and common not in new:
                self._fragments.put(key, self._common(common))
        supported = self._capabilities.auth_request and self._capabilities.authenticators
        relying_parties = tuple(sorted(self._relying_parties, key=_order)) if supported else ()
        self._fragments.put_if_changed(
            "authenticator", relying_parties, partial(auth_request.files, relying_parties)
        )

    def _common(self, common: Common) -> Fragment:
        shares = [(self._clusters.by_name[name], weight) for name, weight in common.shares]
        files = self._upstream(common.name, shares, common.by)
        return Fragment(
            files, uses=frozenset(cluster_key(name) for name, _ in common.shares), inputs=(common,)
        )

    def _plan_clusters(self, new: Iterable[str]) -> None:
        for name in new:
            cluster = self._clusters.by_name.get(name)
            if cluster is None or not cluster.endpoints or cluster.protocol in ("tcp", "udp"):
                self._fragments.drop(f"cluster/{name}")
            else:
                self._fragments.put(f"cluster/{name}", self._cluster(cluster))

    def _cluster(self, cluster: ir.Cluster) -> Fragment:
        try:
            return Fragment(self._upstream(cluster.name, [(cluster, 1)]))
        except Exception as error:
            return Fragment((), (Unsupported(cluster.origin, reason(error)),))

    def _upstream(self, name: str, shares: upstreams.Shares, by: str = "") -> tuple[File, ...]:
        text = upstreams.upstream(self._capabilities, name, shares, by=by)
        endpoints = upstreams.endpoints_files(self._capabilities, name, shares)
        return (File.make(names.upstream_file(name), text), *endpoints)

    def _plan_base(self, gateway: ir_gateway.Gateway, internal_ports: dict[int, int]) -> None:
        """Plan the file that all virtual hosts share."""
        secure = [self._hosts[e.port].sni for e in gateway.listeners if e.protocol == "HTTPS"]
        maps = (*secure, *sorted(self._rate_limit_zones, key=lambda limit: limit.arguments))
        zone = self._zone(names.ZONE)

        def make() -> list[File]:
            text = http_conf(self._capabilities, maps, internal_ports, gateway.edge, zone)
            return [File.make(f"{names.ROOT}/http.conf", text)]

        self._fragments.put_if_changed("base", (maps, internal_ports, gateway.edge, zone), make)

    def _zone(self, name: str) -> list[Directive]:
        if not self._capabilities.resolving_upstreams:
            return []
        # Twice: upstreams of several clusters and of session persistence have copies of their own.
        return [upstreams.zone(name, 2 * self._clusters.endpoints)]

    def _plan_streams(
        self, gateway: ir_gateway.Gateway, internal_ports: dict[int, int], stale: Set[str]
    ) -> None:
        shared = {each.port for each in gateway.streams if each.protocol == "TLS"}
        https = {port: self._hosts[port].names for port in shared & self._hosts.keys()}
        zone = self._zone(names.STREAM_ZONE) if gateway.streams else []
        inputs = (
            gateway.streams, gateway.tunnels, gateway.bind_address, gateway.edge, internal_ports,
            https, zone,
        )  # fmt: skip
        known = self._fragments.get("streams")
        if known is None or known.inputs != inputs or "streams" in stale:
            self._fragments.put(
                "streams", self._streams(gateway, internal_ports, https, zone, inputs)
            )

    def _streams(
        self,
        gateway: ir_gateway.Gateway,
        internal_ports: dict[int, int],
        https: dict[int, tuple[str, ...]],
        zone: list[Directive],
        inputs: tuple[Any, ...],
    ) -> Fragment:
        clusters = self._clusters.by_name
        why = "selection by the destination in a PROXY header is not supported by NGINX; use Envoy"
        unsupported = [
            Unsupported(of_port(gateway.name, each.port), why) for each in gateway.tunnels
        ]
        if not gateway.streams:
            return Fragment((), tuple(unsupported), inputs=inputs)
        if not self._capabilities.stream_servers:
            why = "TCP, UDP and TLS listeners require NGINX 1.25.5 or newer"
            unsupported += [
                Unsupported(of_port(gateway.name, each.port), why) for each in gateway.streams
            ]
            return Fragment((), tuple(unsupported), inputs=inputs)
        files = [File.make(f"{names.ROOT}/stream.conf", passing.stream_conf(gateway.edge, zone))]
        for listener in gateway.streams:
            ports = passing.Ports(
                gateway.bind_address,
                _free(gateway, listener.port, 1),
                internal_ports.get(listener.port, 0),
                https.get(listener.port, ()) if listener.protocol == "TLS" else (),
                gateway.edge,
                self._capabilities.status_zones,
            )
            try:
                tls_connectors.check(self._capabilities, passing.used(listener, clusters))
                text = passing.stream(listener, ports, clusters)
            except Exception as error:
                origin = of_port(gateway.name, listener.port)
                unsupported.append(Unsupported(origin, reason(error)))
                continue
            files.append(File.make(names.stream_file(listener.port, listener.protocol), text))
        for name, shares in passing.upstreams(gateway, clusters).items():
            text = upstreams.stream_upstream(self._capabilities, name, shares)
            files.append(File.make(names.stream_upstream_file(name), text))
            files += upstreams.endpoints_files(self._capabilities, name, shares)
        uses = {b.cluster for each in gateway.streams for host in each.hosts for b in host.backends}
        return Fragment(tuple(files), tuple(unsupported), frozenset(map(cluster_key, uses)), inputs)

    def _plan_named(
        self, kind: str, items: Collection[Any], make: Callable[[Any], tuple[File, ...]]
    ) -> None:
        fresh, gone = self._trackers.setdefault(kind, ChangeTracker()).follow(items)
        for item in gone:
            self._fragments.drop(f"{kind}/{item.name}")
        for item in fresh:
            self._fragments.put(f"{kind}/{item.name}", Fragment(make(item)))


def _internal_ports(gateway: ir_gateway.Gateway) -> dict[int, int]:
    """Return, for each HTTPS port shared with TLS listeners, the port where HTTPS listens."""
    tls_ports = {each.port for each in gateway.streams if each.protocol == "TLS"}
    return {
        each.port: _free(gateway, each.port, 0)
        for each in gateway.listeners
        if each.port in tls_ports
    }


def _free(gateway: ir_gateway.Gateway, port: int, kind: int) -> int:
    """Return a port of this Gateway's address that no listener uses."""
    taken = {each.port for each in gateway.listeners} | {each.port for each in gateway.streams}
    ports = sorted(taken)
    candidate = 40_000 + 2 * ports.index(port) + kind
    while candidate in taken:
        candidate += 2 * len(ports)
    return candidate


def _default(hosts: Hosts) -> list[File]:
    if hosts.has_default:
        return []
    return [File.make(names.default_file(hosts.port.number), default_server(hosts.port))]


def _order(oidc: Oidc) -> tuple[str, str]:
    return oidc.filter, repr(oidc)


def _certificate_files(certificate: ir_gateway.Certificate) -> tuple[File, ...]:
    chain = names.certificate_file(certificate.name, "crt")
    key = names.certificate_file(certificate.name, "key")
    return (
        File.make(chain, certificate.chain),
        File.make(key, certificate.key.reveal(), secret=True),
    )


def _trust_files(bundle: ir_gateway.TrustBundle) -> tuple[File, ...]:
    return (File.make(names.trust_file(bundle.name), bundle.pem),)


def _secret_files(secret: ir_gateway.SecretFile) -> tuple[File, ...]:
    return (File.make(names.secret_file(secret.name), secret.content.reveal(), secret=True),)
