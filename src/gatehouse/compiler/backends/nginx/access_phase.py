"""Checks before the action of a route: body size, rate limits and authentication."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gatehouse.compiler.backends.nginx import (
    authentication,
    external_auth,
    names,
    rate_limits,
    traces,
    traffic_settings,
)
from gatehouse.compiler.backends.nginx.directives import DirectiveNode, block, simple_directive
from gatehouse.compiler.backends.nginx.route_context import Body, Guard, NginxRouteContext
from gatehouse.compiler.ir import http as ir


def guards(context: NginxRouteContext, route: ir.Route) -> Guard:
    """Return the checks before the action of a route. Raises InvalidValueError."""
    settings = route.settings
    client_directives = traffic_settings.differing_directives(
        settings.client.nginx, context.client.nginx, context.capabilities
    )
    guard = authentication.authentication_directives(context, route.name, route.authentication)
    limits = (
        *traffic_settings.body_limit(settings.client.body_size),
        *rate_limits.rate_limit_directives(settings.rates),
    )
    guard = msgspec.structs.replace(
        guard,
        directives=(*limits, *client_directives, *guard.directives),
    )
    return external_auth.guarded(context, route, guard, limits)


def guard_response(context: NginxRouteContext, route: ir.Route, response: Body) -> Body:
    """Put the checks before a response that NGINX generates itself.

    ``return`` runs in an earlier phase than these checks. A location that looks for a file first
    does not skip them.
    """
    checks = route.authentication, route.external_auth
    if not route.settings.rates.limits and checks == (None, None):
        return response
    guard = guards(context, route)
    spans = traces.span_directives(context.traces, route)
    response = msgspec.structs.replace(response, inner=(*spans, *guard.added, *response.inner))
    scope = f"{context.scope}/{route.name}"
    name = names.route(context.scope, f"{route.name}/guarded")
    response = into_named_location(name, (*guard.directives, *guard.auth_directives), response)
    return merge_guard(guard, after_authorization(guard, scope, response))


def after_authorization(
    guard: Guard, scope: str, response: Body, first: Sequence[DirectiveNode] = ()
) -> Body:
    """Put ``first`` and the check by an authorization server, if there is one, before a response.

    It is in a location of its own, so that it denies requests before other checks, and never takes
    a status of these or of a backend for one of the server.
    """
    if not guard.external:
        return response
    response = msgspec.structs.replace(response, inner=(*guard.permitted, *response.inner))
    name = names.route(scope, "authorized")
    return into_named_location(name, (*first, *guard.external), response)


def into_named_location(name: str, first: Iterable[DirectiveNode], response: Body) -> Body:
    """Put ``first`` into a location that leads to a named location ``name`` with the response."""
    onward = simple_directive("try_files", names.NO_FILE, name)
    location = block("location", (name,), response.inner)
    return msgspec.structs.replace(
        response, inner=(*first, onward), locations=(location, *response.locations)
    )


def merge_guard(guard: Guard, response: Body) -> Body:
    """Add the maps and locations of a guard to a response."""
    return msgspec.structs.replace(
        response,
        maps=(*response.maps, *guard.maps),
        locations=(*response.locations, *guard.locations),
        subrequests=(*response.subrequests, *guard.subrequests),
        fixed=(*response.fixed, *guard.fixed),
    )
