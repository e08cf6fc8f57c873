"""The build plan: which resources a gateway has, made again only when what it shows changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gatehouse.backends.envoy import (
    clients,
    clusters,
    compression,
    listeners,
    names,
    scopes,
    secrets,
    streams,
)
from gatehouse.backends.envoy.capabilities import Capabilities
from gatehouse.backends.envoy.quoting import UnwritableError
from gatehouse.backends.envoy.routes import cluster_names
from gatehouse.backends.envoy.served import Context, Shown, shown
from gatehouse.ir import gateway as ir_gateway
from gatehouse.ir import http as ir
from gatehouse.xds.resources import Resource, Resources

Unsupported = tuple[tuple[str, str], ...]


class Generated(msgspec.Struct, frozen=True):
    """Resources, and what of the IR Envoy cannot do: names of routes or ``port/…``, and why."""

    resources: Resources
    unsupported: Unsupported = ()


class _Part(msgspec.Struct, frozen=True):
    """Resources that are made together, and what they were made from."""

    seen: tuple[Any, ...]
    resources: tuple[Resource, ...]
    unsupported: Unsupported = ()
    uses: frozenset[str] = frozenset()
    """Clusters whose look it depends on."""


class Generator:
    """Generates one gateway's resources again and again; the result depends on the input alone."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._parts: dict[str, _Part] = {}
        self._shown: dict[str, Shown | None] = {}
        self._made = Resources()

    def generate(self, gateway: ir_gateway.Gateway) -> Generated:
        """Give everything that Envoy needs to serve ``gateway``."""
        plan = _Plan(self._capabilities, self._parts, self._shown, gateway)
        plan.clusters()
        plan.secrets()
        plan.scopes()
        plan.listeners()
        before, parts = self._parts, plan.parts
        changed = [part for key, part in parts.items() if before.get(key) is not part]
        gone = [part for key, part in before.items() if parts.get(key) is not part]
        new = {each.key: each for part in changed for each in part.resources}
        old = {each.key: each for part in gone for each in part.resources}
        same = {key for key, each in new.items() if key in old and old[key] == each}
        self._made = self._made.changed(
            [each for key, each in new.items() if key not in same], old.keys() - new.keys()
        )
        self._parts, self._shown = parts, plan.shown
        return Generated(self._made, (*plan.common(), *plan.unsupported))


class _Plan:
    """One pass over a gateway."""

    def __init__(
        self,
        capabilities: Capabilities,
        before: Mapping[str, _Part],
        shown: Mapping[str, Shown | None],
        gateway: ir_gateway.Gateway,
    ) -> None:
        self.parts: dict[str, _Part] = {}
        self.shown: dict[str, Shown | None] = {}
        self.unsupported: list[tuple[str, str]] = []
        self._before = before
        self._shown_before = shown
        self._moved: set[str] = set()
        """Clusters that look different from before."""
        self._gateway = gateway
        self._capabilities = capabilities
        self._clusters = {cluster.name: cluster for cluster in gateway.clusters}
        secrets = {secret.name: secret for secret in gateway.secrets}
        self._context = Context(self._clusters, secrets, capabilities)

    def common(self) -> Unsupported:
        """Say what of the whole gateway Envoy leaves out."""
        edge = self._gateway.edge
        found = [("edge", why) for why in (*clients.missing(edge), *compression.missing(edge))]
        why = "snippets are in NGINX's language"
        return (*found, *((f"policy/{each.name}", why) for each in self._gateway.snippets))

    def _part(
        self,
        key: str,
        seen: tuple[Any, ...],
        make: Callable[[], tuple[tuple[Resource, ...], Unsupported]],
        uses: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        """Keep a part whose inputs are the very objects of before, or make it."""
        known = self._before.get(key)
        if (
            known is None
            or len(known.seen) != len(seen)
            or any(a is not b for a, b in zip(known.seen, seen, strict=True))
            or not known.uses.isdisjoint(self._moved)
        ):
            resources, unsupported = make()
            known = _Part(seen, resources, unsupported, uses())
        self.parts[key] = known
        self.unsupported += known.unsupported

    def clusters(self) -> None:
        """Plan clusters with their endpoints, and note which of them look different."""
        for cluster in self._gateway.clusters:
            key = f"cluster/{cluster.name}"
            known = self._before.get(key)
            if known is not None and known.seen[0] is cluster:
                self.parts[key] = known
                self.shown[cluster.name] = self._shown_before[cluster.name]
                continue
            self._part(key, (cluster,), lambda cluster=cluster: self._cluster(cluster))
            self.shown[cluster.name] = look = shown(cluster)
            if self._shown_before.get(cluster.name) != look:
                self._moved.add(cluster.name)
        self._moved |= self._shown_before.keys() - self.shown.keys()

    def _cluster(self, cluster: ir.Cluster) -> tuple[tuple[Resource, ...], Unsupported]:
        ends = clusters.endpoints(cluster)
        return (clusters.cluster(cluster, self._capabilities), ends), ()

    def secrets(self) -> None:
        """Plan certificates and authorities, by the places that ask for them."""
        gateway = self._gateway
        certificates = {each.name: each for each in gateway.certificates}
        bundles = {each.name: each for each in gateway.trust}
        for name, wanted in _certificates(gateway):
            if wanted in certificates:
                found = certificates[wanted]
                self._secret(name, found, lambda n=name, f=found: secrets.certificate(n, f))
        for name, wanted, optional in _trust(gateway):
            if wanted in bundles:
                bundle = bundles[wanted]
                self._secret(
                    f"{name}/{optional}", bundle,
                    lambda n=name, b=bundle, o=optional: secrets.trust(n, b, optional=o),
                )  # fmt: skip

    def _secret(self, name: str, found: Any, make: Callable[[], Resource]) -> None:
        self._part(f"secret/{name}", (found,), lambda: ((make(),), ()))

    def scopes(self) -> None:
        """Plan the virtual hosts: exact names each by itself, all others of a listener together."""
        compared = self._gateway.edge.names_compared
        for listener in self._gateway.listeners:
            apart = compared and listener.protocol == "HTTPS"
            wide: dict[str, list[ir.VirtualHost]] = {}
            for host in listener.virtual_hosts:
                place = host.listener if apart else ""
                others = wide.setdefault(place, [])
                if host.hostname and not host.hostname.startswith("*"):
                    self._exact(listener.port, place, host)
                else:
                    others.append(host)
            for place, hosts in wide.items():
                elsewhere = tuple(sorted(wide.keys() - {place}))
                self._wide(listener.port, place, hosts, elsewhere)

    def _exact(self, port: int, place: str, host: ir.VirtualHost) -> None:
        name = names.scope(port, place, host.hostname)

        def make() -> tuple[tuple[Resource, ...], Unsupported]:
            made = scopes.exact(name, host, self._context)
            return (made.resource,), made.unsupported

        self._part(f"scope/{name}", (host,), make, lambda: _uses([host]))

    def _wide(
        self, port: int, place: str, hosts: list[ir.VirtualHost], elsewhere: tuple[str, ...]
    ) -> None:
        name = names.scope(port, place, names.WIDE)

        def make() -> tuple[tuple[Resource, ...], Unsupported]:
            made = scopes.wide(name, hosts, elsewhere, self._context)
            return (made.resource,), made.unsupported

        key = f"scope/{name} {' '.join(elsewhere)}"
        self._part(key, tuple(hosts), make, lambda: _uses(hosts))

    def listeners(self) -> None:
        """Plan the ports."""
        for port in _ports(self._gateway):
            key = f"port/{port.family}/{port.number}"
            known = self._before.get(key)
            same = known is not None and known.seen[0] == port
            seen = (known.seen[0] if same and known is not None else port,)
            used = frozenset(
                share.cluster for s in port.streams for h in s.hosts for share in h.backends
            )
            mixed = self._mixed(port)
            self._part(
                key, (*seen, *mixed), lambda port=port: self._port(port), lambda used=used: used
            )

    def _mixed(self, port: listeners.Port) -> Iterator[ir.Cluster | None]:
        """Give the clusters whose endpoints stand in those of the port, too."""
        if port.family == "udp":
            for share in port.streams[0].hosts[0].backends:
                yield self._clusters.get(share.cluster)

    def _port(self, port: listeners.Port) -> tuple[tuple[Resource, ...], Unsupported]:
        try:
            found = [listeners.listener(port, self._clusters)]
            if port.family == "udp":
                host = port.streams[0].hosts[0]
                found += streams.mixed(port.number, host, self._clusters)
        except UnwritableError as error:
            return (), ((f"port/{port.number}", str(error)),)
        return tuple(found), ()


def _ports(gateway: ir_gateway.Gateway) -> Iterator[listeners.Port]:
    tls = {each.port: each for each in gateway.streams if each.protocol == "TLS"}
    common = {"bind_address": gateway.bind_address, "edge": gateway.edge}
    for listener in gateway.listeners:
        shared = tls.pop(listener.port, None)
        yield listeners.Port(
            listener.port,
            **common,
            plain=listener.protocol == "HTTP",
            chains=listeners.chains(listener) if listener.protocol == "HTTPS" else (),
            client_validation=listener.client_validation,
            streams=(shared,) if shared is not None else (),
        )
    for stream in gateway.streams:
        if stream.protocol != "TLS" or stream.port in tls:
            yield listeners.Port(stream.port, **common, streams=(stream,))


def _uses(hosts: Iterable[ir.VirtualHost]) -> frozenset[str]:
    return frozenset(
        name
        for host in hosts
        for route in host.routes
        if isinstance(route.action, ir.Forward)
        for name in cluster_names(route.action)
    )


def _certificates(gateway: ir_gateway.Gateway) -> Iterator[tuple[str, str]]:
    """Give the name of every secret that is a certificate, and of what is in it."""
    for listener in gateway.listeners:
        if listener.protocol != "HTTPS":
            continue
        for chain in listeners.chains(listener):
            name = names.chain(listener.port, chain.listener, chain.number)
            for place, wanted in enumerate(chain.certificates):
                yield names.server_certificate(name, place), wanted
    for stream in gateway.streams:
        for host in stream.hosts:
            name = names.chain(stream.port, f"stream/{host.hostname}")
            for place, wanted in enumerate(host.certificates):
                yield names.server_certificate(name, place), wanted
    for cluster in gateway.clusters:
        if cluster.tls is not None and cluster.tls.certificate:
            yield names.backend_certificate(cluster.name), cluster.tls.certificate


def _trust(gateway: ir_gateway.Gateway) -> Iterator[tuple[str, str, bool]]:
    """Give the name of every secret that is a bundle, and of what is in it, and how it is used."""
    for listener in gateway.listeners:
        wanted = listener.client_validation
        if wanted is not None:
            yield names.client_trust(listener.port), wanted.trust, not wanted.required
    for cluster in gateway.clusters:
        if cluster.tls is not None and cluster.tls.trust:
            yield names.backend_trust(cluster.name), cluster.tls.trust, False
