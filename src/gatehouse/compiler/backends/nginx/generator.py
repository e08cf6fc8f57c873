"""The build plan: which files a gateway has, made again only when what they show changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from functools import partial
from typing import Any

import msgspec

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
    Part,
    Parts,
    Unsupported,
    whole,
)
from gatehouse.compiler.backends.nginx.http_conf import http_conf
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.backends.nginx.route_context import Context
from gatehouse.compiler.backends.nginx.servers import Port, default_server
from gatehouse.compiler.backends.nginx.virtual_hosts import Common, Hosts
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.dataplane.file_set import File, FileSet


class Generated(msgspec.Struct, frozen=True):
    """A bundle, and what of the IR this NGINX cannot do: route names or ``port/…``, and why."""

    bundle: FileSet
    unsupported: Unsupported = ()


class Generator:
    """Generates one gateway's files again and again; the result depends on the input alone."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._parts = Parts()
        self._clusters = Clusters()
        self._hosts: dict[int, Hosts] = {}
        self._followed: dict[str, ChangeTracker[Any]] = {}
        """What has a name and files of its own, by kind."""
        self._limits: dict[Directive, None] = {}
        self._users: dict[Oidc, None] = {}
        """What any virtual host needs of these."""

    def generate(self, gateway: ir_gateway.Gateway) -> Generated:
        """Give everything that NGINX needs to serve ``gateway``."""
        new, moved = self._clusters.follow(gateway.clusters)
        stale = self._parts.users(moved)
        hidden = _hidden(gateway)
        self._plan_hosts(gateway, hidden, stale)
        # What virtual hosts need is known when all of them are planned.
        self._plan_needs(stale)
        self._plan_clusters(new)
        self._plan_base(gateway, hidden)
        self._parts.put("around", outer_contexts.part(gateway, self._capabilities))
        self._plan_streams(gateway, hidden, stale)
        connected = self._clusters.connected if self._capabilities.connectors else ()
        self._parts.keep("connectors", connected, partial(tls_connectors.files, connected))
        self._plan_named("certificate", gateway.certificates, _certificate_files)
        self._plan_named("trust", gateway.trust, _trust_files)
        self._plan_named("secret", gateway.secrets, _secret_files)
        bundle, unsupported = self._parts.finish()
        return Generated(bundle, unsupported)

    def _plan_hosts(
        self, gateway: ir_gateway.Gateway, hidden: dict[int, int], stale: Set[str]
    ) -> None:
        context = Context("", self._clusters.by_name, self._capabilities)
        for number in self._hosts.keys() - {each.port for each in gateway.listeners}:
            self._drop_hosts(number)
        for listener in gateway.listeners:
            port = Port(
                listener.port, listener.protocol, gateway.bind_address,
                hidden.get(listener.port, 0), listener.client_validation, gateway.edge,
            )  # fmt: skip
            hosts = self._hosts.get(port.number)
            if hosts is None or hosts.port != port:
                self._drop_hosts(port.number)
                hosts = self._hosts[port.number] = Hosts(self._parts, port)
            hosts.plan(listener.virtual_hosts, context, stale)
            self._parts.keep(f"default/{port.number}", (port, hosts.open), partial(_default, hosts))

    def _drop_hosts(self, number: int) -> None:
        hosts = self._hosts.pop(number, None)
        if hosts is not None:
            hosts.drop()
            self._parts.drop(f"default/{number}")

    def _plan_needs(self, stale: Set[str]) -> None:
        """Plan what virtual hosts need that others may need as well."""
        fresh, gone = self._parts.changed()
        for need in gone:
            if isinstance(need, Common):
                self._parts.drop(f"common/{need.name}")
            self._limits.pop(need, None)
            self._users.pop(need, None)
        for need in fresh:
            if isinstance(need, Common):
                self._parts.put(f"common/{need.name}", self._common(need))
            elif isinstance(need, Oidc):
                self._users[need] = None
            else:
                self._limits[need] = None
        new = {need for need in fresh if isinstance(need, Common)}
        for key in stale:
            known = self._parts.get(key)
            common = known.seen[0] if known is not None and known.seen else None
            if isinstance(common, Common) and common not in new:
                self._parts.put(key, self._common(common))
        able = self._capabilities.auth_request and self._capabilities.authenticators
        users = tuple(sorted(self._users, key=_order)) if able else ()
        self._parts.keep("authenticator", users, partial(auth_request.files, users))

    def _common(self, common: Common) -> Part:
        shares = [(self._clusters.by_name[name], weight) for name, weight in common.shares]
        files = self._upstream(common.name, shares, common.by)
        return Part(files, uses=frozenset(whole(name) for name, _ in common.shares), seen=(common,))

    def _plan_clusters(self, new: Iterable[str]) -> None:
        for name in new:
            cluster = self._clusters.by_name.get(name)
            if cluster is None or not cluster.endpoints or cluster.protocol in ("tcp", "udp"):
                self._parts.drop(f"cluster/{name}")
            else:
                self._parts.put(f"cluster/{name}", Part(self._upstream(name, [(cluster, 1)])))

    def _upstream(self, name: str, shares: upstreams.Shares, by: str = "") -> tuple[File, ...]:
        text = upstreams.upstream(self._capabilities, name, shares, by=by)
        apart = upstreams.endpoints_files(self._capabilities, name, shares)
        return (File.make(names.upstream_file(name), text), *apart)

    def _plan_base(self, gateway: ir_gateway.Gateway, hidden: dict[int, int]) -> None:
        """Plan what all virtual hosts share."""
        secure = [self._hosts[e.port].sni for e in gateway.listeners if e.protocol == "HTTPS"]
        maps = (*secure, *sorted(self._limits, key=lambda limit: limit.arguments))
        zone = self._zone(names.ZONE)

        def make() -> list[File]:
            text = http_conf(self._capabilities, maps, hidden, gateway.edge, zone)
            return [File.make(f"{names.ROOT}/http.conf", text)]

        self._parts.keep("base", (maps, hidden, gateway.edge, zone), make)

    def _zone(self, name: str) -> list[Directive]:
        if not self._capabilities.resolving_upstreams:
            return []
        # Twice: an upstream of several clusters, or of a session, has its own copies.
        return [upstreams.zone(name, 2 * self._clusters.endpoints)]

    def _plan_streams(
        self, gateway: ir_gateway.Gateway, hidden: dict[int, int], stale: Set[str]
    ) -> None:
        shared = {each.port for each in gateway.streams if each.protocol == "TLS"}
        https = {port: self._hosts[port].names for port in shared & self._hosts.keys()}
        zone = self._zone(names.STREAM_ZONE) if gateway.streams else []
        seen = (
            gateway.streams, gateway.tunnels, gateway.bind_address, gateway.edge, hidden, https,
            zone,
        )  # fmt: skip
        known = self._parts.get("streams")
        if known is None or known.seen != seen or "streams" in stale:
            self._parts.put("streams", self._streams(gateway, hidden, https, zone, seen))

    def _streams(
        self,
        gateway: ir_gateway.Gateway,
        hidden: dict[int, int],
        https: dict[int, tuple[str, ...]],
        zone: list[Directive],
        seen: tuple[Any, ...],
    ) -> Part:
        clusters = self._clusters.by_name
        why = "NGINX does not choose by the destination in a PROXY header; Envoy does"
        unsupported = [(f"port/{each.port}", why) for each in gateway.tunnels]
        if not gateway.streams:
            return Part((), tuple(unsupported), seen=seen)
        if not self._capabilities.stream_servers:
            why = "TCP, UDP and TLS listeners need NGINX 1.25.5 or newer"
            unsupported += [(f"port/{each.port}", why) for each in gateway.streams]
            return Part((), tuple(unsupported), seen=seen)
        files = [File.make(f"{names.ROOT}/stream.conf", passing.stream_conf(gateway.edge, zone))]
        for listener in gateway.streams:
            ports = passing.Ports(
                gateway.bind_address,
                _free(gateway, listener.port, 1),
                hidden.get(listener.port, 0),
                https.get(listener.port, ()) if listener.protocol == "TLS" else (),
                gateway.edge,
                self._capabilities.status_zones,
            )
            try:
                tls_connectors.check(self._capabilities, passing.used(listener, clusters))
                text = passing.stream(listener, ports, clusters)
            except InvalidValueError as error:
                unsupported.append((f"port/{listener.port}", str(error)))
                continue
            files.append(File.make(names.stream_file(listener.port, listener.protocol), text))
        for name, shares in passing.upstreams(gateway, clusters).items():
            text = upstreams.stream_upstream(self._capabilities, name, shares)
            files.append(File.make(names.stream_upstream_file(name), text))
            files += upstreams.endpoints_files(self._capabilities, name, shares)
        uses = {b.cluster for each in gateway.streams for host in each.hosts for b in host.backends}
        return Part(tuple(files), tuple(unsupported), frozenset(map(whole, uses)), seen)

    def _plan_named(
        self, kind: str, wanted: Collection[Any], make: Callable[[Any], tuple[File, ...]]
    ) -> None:
        fresh, gone = self._followed.setdefault(kind, ChangeTracker()).follow(wanted)
        for each in gone:
            self._parts.drop(f"{kind}/{each.name}")
        for each in fresh:
            self._parts.put(f"{kind}/{each.name}", Part(make(each)))


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


def _default(hosts: Hosts) -> list[File]:
    if hosts.open:
        return []
    return [File.make(names.default_file(hosts.port.number), default_server(hosts.port))]


def _order(users: Oidc) -> tuple[str, str]:
    return users.filter, repr(users)


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
