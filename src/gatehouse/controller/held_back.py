"""Configuration of a Gateway in which some changes since a known good one are held back. No I/O.

A part is a route, another object, or a credential. The search for the cause of a rejection holds
parts back. Whatever differs from the good configuration because of such a part stays as it is in
the good configuration, so that a search never serves less than data planes serve already. A new
hostname is held back with its certificate, and a new route with the credentials that it, or a new
cluster of it, needs. So nothing is served without them. A new port without the CA certificates of
its clients only has its certificates, so that a test tells which of them are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster, Persistence, Route, VirtualHost
from gatehouse.compiler.ir.kube_apiserver import ApiCluster, ApiListener
from gatehouse.compiler.ir.proxy_settings import NginxSnippet
from gatehouse.compiler.ir.sessions import mixed_sessions
from gatehouse.compiler.ir.settings import Settings
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.mixed_entries import mixed_entries, united_credentials
from gatehouse.controller.quarantined_routes import bare_route, objects_of_route, tracing_objects
from gatehouse.controller.used_credentials import NOWHERE, certificate_port, with_used_credentials
from gatehouse.dataplane.origin import NO_ORIGIN, Origin
from gatehouse.incremental.query import Key

T = TypeVar("T")


class HeldBack(msgspec.Struct, frozen=True, eq=False):
    """Parts of a Gateway's configuration that are held back; at :func:`held_back_key`."""

    good: ir.GatewayConfiguration
    """The newest configuration that is known, or assumed, to be good."""
    parts: frozenset[Suspect]
    view: Callable[[ir.GatewayConfiguration], ir.GatewayConfiguration] = lambda now: now
    """Returns the newest configuration without what no part of this search is."""
    trial: bool = False
    """True if no instance that serves may serve the result."""


def held_back_key(gateway: Key) -> Key:
    """Return the key of what is held back at a Gateway; without a value, nothing is."""
    return ("HeldBack", gateway[1], gateway[2])


def without_held_back(held: HeldBack, now: ir.GatewayConfiguration) -> ir.GatewayConfiguration:
    """Return the newest configuration without what is held back.

    Changes of other objects since the rejection are in it.
    """
    new, good = held.view(now), {entry.name for entry in held.good.credentials}
    mixed = _Differences(held.good, new).mixed(lambda parts: not parts.isdisjoint(held.parts))
    # An accepted step must not show a new credential to be good that the proxy does not read.
    unproven = any(entry.name not in good for entry in new.credentials)
    return with_used_credentials(mixed, good) if unproven else mixed


def changed_parts(
    good: ir.GatewayConfiguration, new: ir.GatewayConfiguration, changed: Callable[[Key], bool]
) -> tuple[Suspect, ...]:
    """Return the parts because of which ``new`` differs from ``good``: routes last, sorted.

    ``changed`` returns whether an object that is no route changed since ``good``.
    """
    collected: set[Suspect] = set()

    def collect(parts: frozenset[Suspect]) -> bool:
        collected.update(part for part in parts if part.origin.kind)
        return False

    _Differences(good, new).mixed(collect, lambda origin: changed(gateway_api.key_of(origin)))
    return tuple(sorted(collected, key=lambda part: (is_route(part), part.origin, part.credential)))


def count_held_back(
    published: ir.GatewayConfiguration | None, new: ir.GatewayConfiguration | None
) -> int:
    """Return the number of objects whose changes the published configuration does not have."""
    if published is None or new is None or published is new or published == new:
        return 0
    return len({part.origin.whole for part in changed_parts(published, new, lambda _: True)})


def is_route(part: Suspect) -> bool:
    """Return whether a part is a route or a match of it."""
    return part.origin.kind in gateway_api.ROUTE_KINDS or bool(part.origin.part or part.origin.port)


def port_part(port: int) -> Suspect:
    """Return the part that is a port of the Gateway, on which it then does not listen."""
    return Suspect(Origin("", "", "", port=port))


def objects_of_gateway(gateway: ir.GatewayConfiguration) -> frozenset[Origin]:
    """Return the policies, filters, parameters and L4 routes of a configuration."""
    collected: set[Origin] = set()

    def collect(parts: frozenset[Suspect]) -> bool:
        collected.update(
            part.origin
            for part in parts
            if part.origin.kind and not part.credential and not part.origin.part
        )
        return False

    empty = ir.GatewayConfiguration(gateway.name, gateway.bind_address)
    _Differences(empty, gateway).mixed(collect)
    return frozenset(collected)


def _name(named: Any) -> str:
    return str(named.name)


_Holds = Callable[[frozenset[Suspect]], bool]
"""Returns whether a difference that some parts contribute to is held back."""


class _Differences:
    """The differences of two configurations, with the parts that contribute to each."""

    def __init__(self, good: ir.GatewayConfiguration, new: ir.GatewayConfiguration) -> None:
        self._good, self._new = good, new
        self._clusters = {entry.name: entry for entry in good.clusters}
        self._new_clusters = {
            entry.name: entry for entry in new.clusters if entry.name not in self._clusters
        }
        self._credentials = {
            credential.name: Suspect(origin, credential=credential.name)
            for credential in new.credentials
            if credential not in good.credentials
            for origin in credential.origins[:1]
        }
        self._holds: _Holds = lambda _: False
        self._changed: Callable[[Origin], bool] | None = None
        self._restored: set[str] = set()
        """Names of the clusters of what is as in the good configuration."""
        self._added: list[ir.L4Listener] = []
        """Ports that only have certificates."""
        self._released: set[str] = set()
        """Names of the clusters of what is new."""

    def mixed(
        self, holds: _Holds, changed: Callable[[Origin], bool] | None = None
    ) -> ir.GatewayConfiguration:
        """Return the new configuration without the differences that are held back.

        ``changed``: returns whether an object changed. Only such objects contribute to a
        difference, and a route only if it differs in more than what these objects set. None: all
        objects contribute.
        """
        self._holds, self._changed = holds, changed
        self._restored, self._released, self._added = set(), set(), []
        good, new = self._good, self._new
        listeners, l4_listeners = tuple(self._listeners()), tuple(self._l4_listeners())
        held = {part.credential for part in self._credentials.values() if holds(frozenset({part}))}
        exporter = new.settings.traces.credentials if new.settings.traces is not None else ()
        return msgspec.structs.replace(
            new,
            listeners=listeners,
            l4_listeners=(*l4_listeners, *self._added),
            api_listeners=tuple(self._api_listeners()),
            clusters=self._mixed_clusters(),
            certificates=united_credentials(good.certificates, new.certificates, held),
            trust_bundles=united_credentials(good.trust_bundles, new.trust_bundles, held),
            secrets=united_credentials(good.secrets, new.secrets, held),
            settings=self._chosen(good.settings, new.settings, new.settings.origins, exporter),
            snippets=self._snippets(good.snippets, new.snippets),
        )

    def _listeners(self) -> Iterator[ir.Listener]:
        before = {(entry.port, entry.protocol): entry for entry in self._good.listeners}
        for listener in self._new.listeners:
            old = before.get((listener.port, listener.protocol))
            if self._holds(frozenset({port_part(listener.port)})):
                continue
            clients, hosts = listener.client_validation, old.virtual_hosts if old else ()
            if clients is not None and self._holds_credentials((clients.trust,)):
                clients = old.client_validation if old is not None else None
                if clients is None:
                    # Nothing new may be served without the validation that it has now.
                    self._restored.update(*(r.clusters for host in hosts for r in host.routes))
                    if old is not None:
                        yield old
                    elif all(listener.port != entry.port for entry in self._new.l4_listeners):
                        self._added += certificate_port(listener, self._holds_credentials)
                    continue
            hosts = mixed_entries(hosts, listener.virtual_hosts, _hostname, self._host)
            yield msgspec.structs.replace(listener, virtual_hosts=hosts, client_validation=clients)

    def _holds_credentials(self, names: Iterable[str]) -> bool:
        return self._holds(self._parts((), names))

    def _host(self, old: VirtualHost | None, new: VirtualHost) -> VirtualHost | None:
        if old == new:
            return new
        routes = tuple(self._routes(old, new))
        if old is None:
            origins = (*new.settings.client.objects, *(entry.origin for entry in new.snippets))
            held = self._holds(self._parts(self._relevant(origins, old), new.certificates))
            return None if held or (new.routes and not routes) else _with_routes(new, routes)
        certificates = new.certificates
        if old.certificates != certificates and self._holds_credentials(certificates):
            certificates = old.certificates
        return msgspec.structs.replace(
            new,
            routes=routes,
            certificates=certificates,
            settings=self._traffic_settings(old.settings, new.settings),
            snippets=self._snippets(old.snippets, new.snippets),
        )

    def _routes(self, old: VirtualHost | None, new: VirtualHost) -> Iterator[Route]:
        same = {id(route) for route in old.routes} if old is not None else set()
        before = (
            {(entry.origin, entry.name): entry for entry in old.routes} if old is not None else {}
        )
        for route in new.routes:
            previous = before.get((route.origin, route.name))
            chosen: Route | None = route
            if id(route) not in same and previous != route:
                chosen = self._route(previous, route)
            if chosen is not None:
                yield chosen

    def _route(self, old: Route | None, new: Route) -> Route | None:
        """Return the old or the new route.

        If they differ only in what policies and filters set, each of these is chosen alone. A
        route that differs in more is never mixed: it may need its new authentication.
        """
        origins = [*objects_of_route(new), *self._objects_of_clusters(new.clusters)]
        if self._changed is not None:
            origins = list(filter(self._changed, origins))
        authentication = new.authentication
        secrets = authentication.secrets if authentication is not None else ()
        unset = self._changed is not None and not origins
        if old is None or unset or bare_route(old) != bare_route(new):
            credentials = (*secrets, *self._credentials_of_clusters(new.clusters))
            if self._holds(self._parts((*origins, new.origin), credentials)):
                self._restored |= old.clusters if old is not None else set()
                return old
            self._released |= new.clusters
            return new
        if self._changed is None and self._holds(self._parts((new.origin,))):
            return old
        if old.authentication != authentication and authentication is not None:
            objects = self._relevant((authentication.origin.whole,), old)
            if self._holds(self._parts(objects, secrets)):
                authentication = old.authentication
        return msgspec.structs.replace(
            new,
            action=mixed_sessions(old.action, new.action, self._session),
            authentication=authentication,
            settings=self._traffic_settings(old.settings, new.settings),
            snippets=self._snippets(old.snippets, new.snippets),
        )

    def _session(self, old: Persistence | None, new: Persistence | None) -> Persistence | None:
        return self._chosen(old, new, () if new is None else (new.origin.whole,))

    def _traffic_settings(self, old: Settings, new: Settings) -> Settings:
        limits = tuple(limit.origin.whole for limit in new.rates.rules)
        sections = {
            name: self._chosen(getattr(old, name), section, section.objects)
            for name, section in new.sections.items()
        }
        return msgspec.structs.replace(
            new,
            **sections,
            rates=self._chosen(old.rates, new.rates, limits),
            tracing=self._chosen(old.tracing, new.tracing, tracing_objects(new)),
        )

    def _chosen(
        self, old: T, new: T, objects: Iterable[Origin], credentials: Iterable[str] = ()
    ) -> T:
        """Return the old value if an object or credential of the new one is held back; else the
        new."""
        if old == new:
            return new
        return old if self._holds(self._parts(self._relevant(objects, old), credentials)) else new

    def _relevant(self, origins: Iterable[Origin], old: object) -> tuple[Origin, ...]:
        """Return the objects that changed; all if none did and there is an old value."""
        every = tuple(origins)
        if self._changed is None:
            return every
        return tuple(filter(self._changed, every)) or (every if old is not None else ())

    def _objects_of_clusters(self, names: Iterable[str]) -> Iterator[Origin]:
        for name in names:
            if name in self._new_clusters:
                yield from self._new_clusters[name].settings.objects

    def _credentials_of_clusters(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            if name in self._new_clusters:
                yield from self._new_clusters[name].credentials

    def _parts(
        self, origins: Iterable[Origin], credentials: Iterable[str] = ()
    ) -> frozenset[Suspect]:
        known = (self._credentials[name] for name in credentials if name in self._credentials)
        objects = (Suspect(origin) for origin in origins if origin != NO_ORIGIN)
        return frozenset({*known, *objects})

    def _l4_listeners(self) -> Iterator[ir.L4Listener]:
        before = {(entry.port, entry.protocol): entry.hosts for entry in self._good.l4_listeners}
        for listener in self._new.l4_listeners:
            if self._holds(frozenset({port_part(listener.port)})):
                continue
            old = before.get((listener.port, listener.protocol), ())
            hosts = mixed_entries(old, listener.hosts, _hostname, self._l4_host)
            if hosts or not listener.hosts:
                yield msgspec.structs.replace(listener, hosts=hosts)

    def _l4_host(self, old: ir.L4Host | None, new: ir.L4Host) -> ir.L4Host | None:
        if old == new:
            return new
        objects = self._relevant(self._objects_of_clusters(new.clusters), None)
        credentials = (*new.certificates, *self._credentials_of_clusters(new.clusters))
        if not self._holds(self._parts((new.origin, *objects), credentials)):
            self._released |= new.clusters
            return new
        self._restored |= old.clusters if old is not None else set()
        return old

    def _api_listeners(self) -> Iterator[ApiListener]:
        before = {entry.port: entry for entry in self._good.api_listeners}
        for listener in self._new.api_listeners:
            old, certificates = before.get(listener.port), listener.certificates
            if self._holds_credentials(certificates):
                if old is None:
                    continue
                certificates = old.certificates
            clusters = mixed_entries(
                old.clusters if old is not None else (), listener.clusters, _name, self._api_cluster
            )
            yield msgspec.structs.replace(
                listener, clusters=tuple(clusters), certificates=certificates
            )

    def _api_cluster(self, old: ApiCluster | None, new: ApiCluster) -> ApiCluster | None:
        return old if self._holds_credentials(new.credentials) else new

    def _mixed_clusters(self) -> Collection[Cluster]:
        new = self._new
        clusters = mixed_entries(self._good.clusters, new.clusters, _name, self._cluster)
        others = new.api_listeners or new.proxy_protocol_listeners or new.http_connect_listeners
        unused = () if others else self._new_clusters.keys() - self._released
        names = {entry.name for entry in clusters}
        restored = [
            self._clusters[name] for name in sorted(self._restored & self._clusters.keys() - names)
        ]
        restored += [NOWHERE] if self._added and NOWHERE.name not in names else []
        if not unused and not restored:
            return clusters
        remaining = [entry for entry in clusters if entry.name not in unused]
        return tuple(sorted((*remaining, *restored), key=_name))

    def _cluster(self, old: Cluster | None, new: Cluster) -> Cluster:
        if old is None or old == new:
            return new
        if old == msgspec.structs.replace(new, endpoints=old.endpoints):
            return new
        tls = new.tls
        if old.tls != tls and self._holds_credentials(new.credentials):
            tls = old.tls
        settings = self._chosen(old.settings, new.settings, new.settings.objects)
        return msgspec.structs.replace(new, tls=tls, settings=settings)

    def _snippets(
        self, old: tuple[NginxSnippet, ...], new: tuple[NginxSnippet, ...]
    ) -> tuple[NginxSnippet, ...]:
        held = {
            entry.origin
            for entry in new
            if entry not in old and self._holds(self._parts((entry.origin,)))
        }
        remaining = (entry for entry in old if entry in new or entry.origin in held)
        added = (entry for entry in new if entry not in old and entry.origin not in held)
        return (*remaining, *added) if held else new


def _hostname(host: VirtualHost | ir.L4Host) -> str:
    return host.hostname


def _with_routes(host: VirtualHost, routes: tuple[Route, ...]) -> VirtualHost:
    return msgspec.structs.replace(host, routes=routes)
