"""Routes of two versions of a Gateway, as the quarantine compares and replaces them. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.http import Respond, Route
from gatehouse.compiler.ir.sessions import policy_sessions, without_sessions
from gatehouse.compiler.ir.settings import Settings
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.table import table_difference


def failing_route(route: Route) -> Route:
    """Return the route that answers the same requests with 500."""
    return Route(route.name, route.match, Respond(500), origin=route.origin)


def bare_route(route: Route) -> Route:
    """Return a route without what policies and filters set."""
    own = without_sessions(route, lambda _: True)
    own = own if own.policy_retry is None else own.with_retry(None)
    return msgspec.structs.replace(own, settings=Settings(), authentication=None, snippets=())


def objects_of_route(route: Route) -> Iterator[Origin]:
    """Yield the policies and filters of a route."""
    settings = route.settings
    for section in settings.sections.values():
        yield from section.objects
    yield from (limit.origin.whole for limit in settings.rates.rules)
    yield from (session.origin.whole for session in policy_sessions(route))
    yield from tracing_objects(settings)
    if route.policy_retry is not None:
        yield route.policy_retry.origin.whole
    if route.authentication is not None:
        yield route.authentication.origin.whole
    yield from (snippet.origin for snippet in route.snippets)


def tracing_objects(settings: Settings) -> tuple[Origin, ...]:
    """Return the policy that sets the traces of a route, if one does."""
    return (settings.tracing.origin.whole,) if settings.tracing is not None else ()


def configured_routes(gateway: GatewayConfiguration) -> Iterator[Route]:
    """Yield the routes of all listeners."""
    for listener in gateway.listeners:
        for host in listener.virtual_hosts:
            yield from host.routes


def changed_routes(
    before: GatewayConfiguration | None, now: GatewayConfiguration
) -> Iterator[Route]:
    """Yield the routes of ``now`` that are in virtual hosts that changed and are new there."""
    previous = before.listeners if before else ()
    known = {listener.port: listener.virtual_hosts for listener in previous}
    for listener in now.listeners:
        new, gone = table_difference(known.get(listener.port, ()), listener.virtual_hosts)
        old = {route for host in gone for route in host.routes}
        yield from (route for host in new for route in host.routes if route not in old)
