"""Checks before the action of a route: body size, rate limits and authentication."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.backends.nginx import authentication, names, rate_limits, traffic_settings
from gatehouse.compiler.backends.nginx.directives import Node, block, simple
from gatehouse.compiler.backends.nginx.route_context import Body, Context, Guard
from gatehouse.compiler.ir import http as ir


def guards(context: Context, route: ir.Route) -> Guard:
    """Return the checks before the action of a route. Raises InvalidValueError."""
    settings = route.settings
    body_limit, body_maps = traffic_settings.body_limit(settings.client.body_size)
    client_directives = traffic_settings.differing(
        settings.client, context.client, context.capabilities
    )
    guard = authentication.guard(context, route.name, route.authentication)
    return msgspec.structs.replace(
        guard,
        directives=(
            *body_limit,
            *client_directives,
            *rate_limits.limits(settings.rates),
            *guard.directives,
        ),
        maps=(*body_maps, *guard.maps),
    )


def guard_response(context: Context, route: ir.Route, response: Body) -> Body:
    """Put the checks before a response that NGINX generates itself.

    ``return`` runs in an earlier phase than these checks. A location that looks for a file first
    does not skip them.
    """
    if not route.settings.rates.limits and route.authentication is None:
        return response
    guard = guards(context, route)
    response = msgspec.structs.replace(response, inner=(*guard.added, *response.inner))
    name = names.route(context.scope, f"{route.name}/guarded")
    return merge_guard(
        guard, into_named_location(name, (*guard.directives, *guard.auth_directives), response)
    )


def into_named_location(name: str, first: Iterable[Node], response: Body) -> Body:
    """Put ``first`` into a location that leads to a named location ``name`` with the response."""
    onward = simple("try_files", names.NO_FILE, name)
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
        fixed=(*response.fixed, *guard.fixed),
    )
