"""What stands before a route's action: limits of bodies and rates, authentication."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.backends.nginx import authentication, names, rate_limits, traffic_settings
from gatehouse.compiler.backends.nginx.directives import Node, block, simple
from gatehouse.compiler.backends.nginx.route_context import Body, Context, Guard
from gatehouse.compiler.ir import http as ir


def guards(context: Context, route: ir.Route) -> Guard:
    """Give what stands before a route. Raises UnwritableError."""
    wanted = route.settings
    refuse, lengths = traffic_settings.body_limit(wanted.client.body_size)
    own = traffic_settings.differing(wanted.client, context.client, context.capabilities)
    known = authentication.guard(context, route.name, route.authentication)
    return msgspec.structs.replace(
        known,
        directives=(*refuse, *own, *rate_limits.limits(wanted.rates), *known.directives),
        maps=(*lengths, *known.maps),
    )


def guard_response(context: Context, route: ir.Route, answer: Body) -> Body:
    """Put the guards before an answer of NGINX's own.

    ``return`` is done before anything is guarded; a location that looks for a file first is not.
    """
    if not route.settings.rates.limits and route.authentication is None:
        return answer
    found = guards(context, route)
    answer = msgspec.structs.replace(answer, inner=(*found.added, *answer.inner))
    name = names.route(context.scope, f"{route.name}/guarded")
    return merge_guard(found, into_named_location(name, (*found.directives, *found.asking), answer))


def into_named_location(name: str, first: Iterable[Node], answer: Body) -> Body:
    """Put what is done ``first`` into a location of its own; the answer's is called ``name``."""
    onward = simple("try_files", names.NO_FILE, name)
    location = block("location", (name,), answer.inner)
    return msgspec.structs.replace(
        answer, inner=(*first, onward), locations=(location, *answer.locations)
    )


def merge_guard(found: Guard, answer: Body) -> Body:
    """Add what guards need around them to an answer."""
    return msgspec.structs.replace(
        answer,
        maps=(*answer.maps, *found.maps),
        locations=(*answer.locations, *found.locations),
        fixed=(*answer.fixed, *found.fixed),
    )
