"""Configurations of a Gateway without some parts of it. No I/O.

They have in place of a part what data planes serve of it, as far as that is known:

- nothing of a new route, and for any other status 500, or the end of the connection;
- status 500 for the matches that use a filter;
- no setting of a policy or of parameters.

Without a credential, a route that needs it is such a part. A hostname without its certificate, or a
port without its CA certificates, is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster, Route, VirtualHost
from gatehouse.compiler.ir.proxy_settings import NginxSnippet
from gatehouse.compiler.ir.sessions import without_sessions
from gatehouse.compiler.ir.settings import DataPlaneSettings, Settings
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.held_back import HeldBack, without_held_back
from gatehouse.controller.quarantined_routes import failing_route
from gatehouse.controller.used_credentials import secrets_of_route, with_used_credentials
from gatehouse.dataplane.origin import NO_ORIGIN, Origin
from gatehouse.incremental.table import Values

T = TypeVar("T")


def empty_gateway(gateway: ir.GatewayConfiguration) -> ir.GatewayConfiguration:
    """Return a configuration of the same Gateway that serves nothing."""
    return ir.GatewayConfiguration(gateway.name, gateway.bind_address)


def bare_gateway(gateway: ir.GatewayConfiguration) -> ir.GatewayConfiguration:
    """Return a configuration without the effect of policies, filters and parameters."""
    return _Reduction(lambda _: True, lambda _: False, lambda _: False).gateway(gateway)


def gateway_without_routes(gateway: ir.GatewayConfiguration) -> ir.GatewayConfiguration:
    """Return a configuration of the same hostnames with nothing but their certificates."""
    bare = bare_gateway(gateway)
    listeners = tuple(
        msgspec.structs.replace(
            listener,
            virtual_hosts=tuple(
                msgspec.structs.replace(host, routes=()) for host in listener.virtual_hosts
            ),
        )
        for listener in bare.listeners
    )
    l4_listeners = tuple(
        msgspec.structs.replace(
            listener,
            hosts=tuple(msgspec.structs.replace(host, backends=()) for host in listener.hosts),
        )
        for listener in bare.l4_listeners
    )
    return with_used_credentials(
        msgspec.structs.replace(bare, listeners=listeners, l4_listeners=l4_listeners, clusters=())
    )


def gateway_without_objects(
    gateway: ir.GatewayConfiguration,
    removed: Callable[[Origin], bool],
    is_new: Callable[[Origin], bool],
    *,
    drops: bool = False,
) -> ir.GatewayConfiguration:
    """Return a configuration without some objects.

    ``is_new``: returns whether a removed route is absent; else it fails. ``drops``: routes of HTTP
    are absent in any case.
    """
    return _Reduction(removed, lambda route: removed(route.origin), is_new, drops=drops).gateway(
        gateway
    )


def gateway_without_credentials(
    gateway: ir.GatewayConfiguration,
    credentials: Collection[Suspect],
    is_new: Callable[[Origin], bool],
) -> ir.GatewayConfiguration:
    """Return a configuration without some credentials, and without what needs them.

    ``is_new``: returns whether a route that needs them is absent; else it fails.
    """
    names = {part.credential for part in credentials}
    clusters = {entry.name for entry in gateway.clusters if not names.isdisjoint(entry.credentials)}

    def needs(route: Route | ir.L4Host) -> bool:
        secrets = secrets_of_route(route) if isinstance(route, Route) else ()
        return not (names.isdisjoint(secrets) and clusters.isdisjoint(route.clusters))

    failing = _Reduction(lambda _: False, needs, is_new).gateway(gateway)
    traces = failing.settings.traces
    if traces is not None and not names.isdisjoint(traces.credentials):
        settings = msgspec.structs.replace(failing.settings, traces=None)
        failing = msgspec.structs.replace(failing, settings=settings)
    held = HeldBack(empty_gateway(gateway), frozenset(credentials))
    return without_held_back(held, failing)


class _Reduction:
    """Removal of objects from a configuration."""

    def __init__(
        self,
        object_removed: Callable[[Origin], bool],
        route_removed: Callable[[Route | ir.L4Host], bool],
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
        return with_used_credentials(
            msgspec.structs.replace(
                rejected,
                listeners=listeners,
                l4_listeners=l4_listeners,
                settings=settings,
                clusters=_mapped(rejected.clusters, self._cluster),
                snippets=self._snippets(rejected.snippets),
            )
        )

    def _host(self, host: VirtualHost) -> VirtualHost | None:
        routes = tuple(route for route in map(self._route, host.routes) if route is not None)
        if host.routes and not routes:
            return None
        settings, snippets = self._settings(host.settings), self._snippets(host.snippets)
        changed = msgspec.structs.replace(host, routes=routes, settings=settings, snippets=snippets)
        return host if changed == host else changed

    def _route(self, route: Route) -> Route | None:
        removed = self._route_removed(route)
        if removed or any(map(self._removes, _filters(route))):
            self._removed |= route.clusters
            absent = removed and (self._drops or self._is_new(route.origin))
            return None if absent else failing_route(route)
        self._used |= route.clusters
        route = without_sessions(route, lambda session: self._removes(session.origin))
        if route.policy_retry is not None and self._removes(route.policy_retry.origin):
            route = route.with_retry(None)
        settings, snippets = self._settings(route.settings), self._snippets(route.snippets)
        if settings is route.settings and len(snippets) == len(route.snippets):
            return route
        return msgspec.structs.replace(route, settings=settings, snippets=snippets)

    def _l4_host(self, host: ir.L4Host) -> ir.L4Host | None:
        if self._route_removed(host):
            self._removed |= host.clusters
            if self._is_new(host.origin):
                return None
            # Without it, the connections would go to a less specific hostname.
            return ir.L4Host(host.hostname, origin=host.origin, rule=host.rule)
        self._used |= host.clusters
        return host

    def _cluster(self, cluster: Cluster) -> Cluster | None:
        if cluster.name in self._removed and cluster.name not in self._used:
            return None
        settings = cluster.settings.without(self._removes)
        if settings is cluster.settings:
            return cluster
        return msgspec.structs.replace(cluster, settings=settings)

    def _settings(self, settings: Settings) -> Settings:
        changed: dict[str, object] = {
            name: reduced
            for name, section in settings.sections.items()
            if (reduced := section.without(self._removes)) is not section
        }
        if any(self._removes(limit.origin) for limit in settings.rates.rules):
            limits, shared = (
                tuple(limit for limit in limits if not self._removes(limit.origin))
                for limits in (settings.rates.limits, settings.rates.shared)
            )
            changed["rates"] = msgspec.structs.replace(settings.rates, limits=limits, shared=shared)
        return msgspec.structs.replace(settings, **changed) if changed else settings

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
