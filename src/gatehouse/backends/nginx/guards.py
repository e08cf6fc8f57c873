"""What stands before a route's action: limits of bodies and rates, authentication."""

from __future__ import annotations

import msgspec

from gatehouse.backends.nginx import authentication, names, rates, settings
from gatehouse.backends.nginx.served import Body, Context
from gatehouse.backends.nginx.tree import Directive, Node, block, simple
from gatehouse.ir import http as ir


class Guards(msgspec.Struct, frozen=True):
    """Directives of a location, the maps they need, and headers told to its backend."""

    directives: tuple[Directive, ...] = ()
    maps: tuple[Directive, ...] = ()
    told: tuple[tuple[str, str], ...] = ()


def guards(context: Context, route: ir.Route) -> Guards:
    """Give what stands before a route. Raises UnwritableError."""
    wanted = route.settings
    refuse, lengths = settings.body_limit(wanted.client.body_size)
    own = settings.differing(wanted.client, context.client, context.capabilities)
    known = authentication.guard(context, route.name, route.authentication)
    return Guards(
        (*refuse, *own, *rates.limits(wanted.rates), *known.directives),
        (*lengths, *known.maps),
        known.told,
    )


def before(context: Context, route: ir.Route, answer: Body) -> Body:
    """Put the guards before an answer of NGINX's own.

    ``return`` is done before anything is guarded; a location that looks for a file first is not.
    """
    if not route.settings.rates.limits and route.authentication is None:
        return answer
    found = guards(context, route)
    name = names.route(context.scope, f"{route.name}/guarded")
    onward = simple("try_files", names.NO_FILE, name)
    nodes: tuple[Node, ...] = (*found.directives, onward)
    location = block("location", (name,), answer.inner)
    return Body(nodes, (*answer.maps, *found.maps), (location, *answer.locations), answer.fixed)
