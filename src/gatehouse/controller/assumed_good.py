"""Configuration that a new controller assumes to be good: a rejected one without its suspects.

It has in place of a suspect what data planes serve of it, as far as that is known:

- nothing of a new route, and for any other status 500, or the end of the connection;
- status 500 for the matches that use a filter;
- no setting of a policy or of parameters.

The suspects are objects whose status does not say that they are served. Instances that take trials
do not serve what is tried. So a search on these goes on among all objects: policies, filters and
parameters first, then routes without any of these. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster, Route, VirtualHost
from gatehouse.compiler.ir.proxy_settings import NginxSnippet
from gatehouse.compiler.ir.settings import DataPlaneSettings, Settings
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.held_back import changed_parts, is_route
from gatehouse.controller.quarantined_routes import failing_route
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.origin import NO_ORIGIN, Origin
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Values

T = TypeVar("T")


class SearchScope(msgspec.Struct, frozen=True):
    """Objects among which a search looks for the cause of a rejection."""

    good: ir.GatewayConfiguration
    """A configuration that is known, or assumed, to be good."""
    parts: tuple[Suspect, ...]
    """Parts that it lacks."""
    view: Callable[[ir.GatewayConfiguration], ir.GatewayConfiguration] = lambda gateway: gateway
    """Returns the configuration that has all parts."""
    trial: bool = False
    """True if no instance that serves may serve the steps."""
    precise: bool = True
    """False if a part may be left out although another one is the cause."""


def empty_gateway(gateway: ir.GatewayConfiguration) -> ir.GatewayConfiguration:
    """Return a configuration of the same Gateway that serves nothing."""
    return ir.GatewayConfiguration(gateway.name, gateway.bind_address)


def bare_gateway(gateway: ir.GatewayConfiguration) -> ir.GatewayConfiguration:
    """Return a configuration without the effect of policies, filters and parameters."""
    return _Reduction(lambda _: True, lambda _: False, lambda _: False).gateway(gateway)


def assumed_scopes(
    rejected: ir.GatewayConfiguration,
    history: Callable[[Key], StatusHistory],
    *,
    serving: bool,
    trials: bool,
) -> Iterator[SearchScope]:
    """Yield where the cause of a rejection may be, the most suspect objects first.

    ``serving``: an instance serves a configuration. Then objects that it serves as they are have no
    part in a search, since it would serve less meanwhile. ``trials``: an instance takes trials,
    for which this does not matter. They come first.
    """
    if trials:
        scopes = (*_suspect_scopes(rejected, history), *_complete_scopes(rejected))
        yield from (msgspec.structs.replace(scope, trial=True) for scope in scopes)
    yield from _suspect_scopes(rejected, history)
    if not serving:
        yield from _complete_scopes(rejected)


def _suspect_scopes(
    rejected: ir.GatewayConfiguration, history: Callable[[Key], StatusHistory]
) -> Iterator[SearchScope]:
    """Yield the scopes of objects whose status does not say that they are served.

    The last ones lack routes that fail in the first ones. A match may itself be the cause, and then
    no answer can be given.
    """
    tried = [rejected]
    for drops in (False, True):
        for limit in (StatusHistory.REJECTED, StatusHistory.CHANGED):

            def suspects(origin: Origin, limit: StatusHistory = limit) -> bool:
                return history(gateway_api.key_of(origin.whole)) <= limit

            scope = _scope_of(rejected, suspects, history, drops=drops)
            if scope.good not in tried:
                yield scope
            tried.append(scope.good)


def single_scopes(
    rejected: ir.GatewayConfiguration,
    objects: Iterable[Origin],
    history: Callable[[Key], StatusHistory],
) -> Iterator[SearchScope]:
    """Yield the scopes of each object alone: without the answers of a route, and without it."""
    for suspect in objects:
        tried = [rejected]
        for drops in (False, True):

            def suspects(origin: Origin, suspect: Origin = suspect) -> bool:
                return origin.whole == suspect

            scope = _scope_of(rejected, suspects, history, drops=drops)
            if scope.good not in tried:
                yield msgspec.structs.replace(scope, precise=False)
            tried.append(scope.good)


def named_scope(
    rejected: ir.GatewayConfiguration,
    named: Iterable[Suspect],
    history: Callable[[Key], StatusHistory],
) -> SearchScope:
    """Return the scope of the objects that a proxy names. It has no credentials and ports."""
    objects = {part.origin.whole for part in named if part.origin.kind and not part.credential}
    return _scope_of(rejected, lambda origin: origin.whole in objects, history)


def _scope_of(
    rejected: ir.GatewayConfiguration,
    suspects: Callable[[Origin], bool],
    history: Callable[[Key], StatusHistory],
    *,
    drops: bool = False,
) -> SearchScope:
    def is_new(origin: Origin) -> bool:
        return history(gateway_api.key_of(origin.whole)) is StatusHistory.NEW

    good = _Reduction(suspects, suspects, is_new, drops=drops).gateway(rejected)
    parts = all_parts(good, rejected)
    return SearchScope(
        good, tuple(part for part in parts if not part.credential and suspects(part.origin))
    )


def _complete_scopes(rejected: ir.GatewayConfiguration) -> Iterator[SearchScope]:
    """Yield the scope of all objects that are no routes, and that of all routes."""
    bare = bare_gateway(rejected)
    parts = all_parts(bare, rejected)
    objects = tuple(part for part in parts if not part.credential and not is_route(part))
    yield SearchScope(bare, objects, precise=False)
    empty = empty_gateway(rejected)
    routes = tuple(filter(is_route, all_parts(empty, bare)))
    yield SearchScope(empty, routes, view=bare_gateway, precise=False)


def all_parts(good: ir.GatewayConfiguration, new: ir.GatewayConfiguration) -> tuple[Suspect, ...]:
    """Return the parts because of which two configurations differ, whether they changed or not."""
    return changed_parts(good, new, lambda _: True)


class _Reduction:
    """Removal of objects from a configuration."""

    def __init__(
        self,
        object_removed: Callable[[Origin], bool],
        route_removed: Callable[[Origin], bool],
        is_new: Callable[[Origin], bool],
        *,
        drops: bool = False,
    ) -> None:
        """``is_new``: returns whether a removed route is absent; else it fails. ``drops``: routes
        of HTTP are absent in any case."""
        self._object_removed, self._route_removed = object_removed, route_removed
        self._is_new, self._drops = is_new, drops
        self._removed: set[str] = set()
        """Names of the clusters of routes that are not forwarded."""
        self._used: set[str] = set()

    def _removes(self, origin: Origin) -> bool:
        return origin != NO_ORIGIN and self._object_removed(origin)

    def gateway(self, rejected: ir.GatewayConfiguration) -> ir.GatewayConfiguration:
        """Return a configuration without the removed objects."""
        listeners = tuple(
            msgspec.structs.replace(
                listener, virtual_hosts=_mapped(listener.virtual_hosts, self._host)
            )
            for listener in rejected.listeners
        )
        l4_listeners = tuple(
            msgspec.structs.replace(listener, hosts=_mapped(listener.hosts, self._l4_host))
            for listener in rejected.l4_listeners
        )
        settings = rejected.settings
        if any(map(self._removes, settings.origins)):
            settings = DataPlaneSettings()
        return msgspec.structs.replace(
            rejected,
            listeners=listeners,
            l4_listeners=l4_listeners,
            settings=settings,
            clusters=_mapped(rejected.clusters, self._cluster),
            snippets=self._snippets(rejected.snippets),
        )

    def _host(self, host: VirtualHost) -> VirtualHost | None:
        routes = tuple(route for route in map(self._route, host.routes) if route is not None)
        if host.routes and not routes:
            return None
        settings, snippets = self._settings(host.settings), self._snippets(host.snippets)
        changed = msgspec.structs.replace(host, routes=routes, settings=settings, snippets=snippets)
        return host if changed == host else changed

    def _route(self, route: Route) -> Route | None:
        removed = self._route_removed(route.origin)
        if removed or any(map(self._removes, _filters(route))):
            self._removed |= route.clusters
            absent = removed and (self._drops or self._is_new(route.origin))
            return None if absent else failing_route(route)
        self._used |= route.clusters
        settings, snippets = self._settings(route.settings), self._snippets(route.snippets)
        if settings is route.settings and len(snippets) == len(route.snippets):
            return route
        return msgspec.structs.replace(route, settings=settings, snippets=snippets)

    def _l4_host(self, host: ir.L4Host) -> ir.L4Host | None:
        clusters = {backend.cluster for backend in host.backends}
        if self._route_removed(host.origin):
            self._removed |= clusters
            if self._is_new(host.origin):
                return None
            # Without it, the connections would go to a less specific hostname.
            return ir.L4Host(host.hostname, origin=host.origin, rule=host.rule)
        self._used |= clusters
        return host

    def _cluster(self, cluster: Cluster) -> Cluster | None:
        if cluster.name in self._removed and cluster.name not in self._used:
            return None
        settings = cluster.settings.without(self._removes)
        if settings is cluster.settings:
            return cluster
        return msgspec.structs.replace(cluster, settings=settings)

    def _settings(self, settings: Settings) -> Settings:
        client = settings.client.without(self._removes)
        proxy = settings.proxy.without(self._removes)
        rates, limits = settings.rates, settings.rates.limits
        remaining = tuple(limit for limit in limits if not self._removes(limit.origin))
        if len(remaining) < len(limits):
            rates = msgspec.structs.replace(rates, limits=remaining)
        if client is settings.client and proxy is settings.proxy and rates is settings.rates:
            return settings
        return msgspec.structs.replace(settings, client=client, proxy=proxy, rates=rates)

    def _snippets(self, snippets: tuple[NginxSnippet, ...]) -> tuple[NginxSnippet, ...]:
        return tuple(entry for entry in snippets if not self._removes(entry.origin))


def _filters(route: Route) -> Iterator[Origin]:
    """Yield the filters without which a route must not be served."""
    if route.authentication is not None:
        yield route.authentication.origin
    origins = (snippet.origin for snippet in route.snippets)
    yield from (origin for origin in origins if origin.kind in gateway_api.FILTER_KINDS)


def _mapped(values: Collection[T], change: Callable[[T], T | None]) -> Collection[T]:
    """Return the changed values without those that are None. The same ones if none changed."""
    if isinstance(values, Values):
        items: Iterable[tuple[Any, T, T | None]] = (
            (key, value, change(value)) for key, value in values.table.items()
        )
        differing = [(key, new) for key, old, new in items if new is not old]
        changed = {key: new for key, new in differing if new is not None}
        gone = [key for key, new in differing if new is None]
        return values.table.updated(changed, gone).values() if differing else values
    return tuple(new for new in map(change, values) if new is not None)
