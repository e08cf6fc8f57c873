"""Checks of all requests to the hostnames of a listener, before a route is chosen (GEP-5224).

NGINX chooses the location by the path, which no check changes, and the route by the conditions of
the location. So each location asks the server, and leads to a named location with the conditions.
These compare the headers of the server's response: see ``authorized`` of
:class:`~gatehouse.compiler.backends.nginx.route_context.NginxRouteContext`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.nginx import external_auth, names
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple_directive
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import Unsupported


class CheckedHost(msgspec.Struct, frozen=True):
    """A virtual host with the check of its listener."""

    host: ir.VirtualHost
    context: NginxRouteContext
    """The context of its routes."""
    check: RoutePiece | None = None
    """None: the listener checks nothing, or requests get 500 because it cannot."""
    unsupported: tuple[Unsupported, ...] = ()


def checked_host(host: ir.VirtualHost, context: NginxRouteContext) -> CheckedHost:
    """Return a virtual host with the check of its listener.

    Its routes are not traced: NGINX decides about traces before the check.
    """
    auth = host.external_auth
    if auth is None:
        return CheckedHost(host, context)
    copied = external_auth.copied_headers(auth).items()
    authorized = {name.lower(): variable for name, variable in copied}
    own = msgspec.structs.replace(context, authorized=authorized, is_checked=True, traces=None)
    try:
        return CheckedHost(host, own, external_auth.check_piece(context, auth))
    except Exception as error:
        failed = tuple(unserved(route.origin, error) for route in host.routes)
        routes = (ir.Route(action=ir.Respond(500)),)
        return CheckedHost(msgspec.structs.replace(host, routes=routes), own, unsupported=failed)


def checked_locations(
    check: RoutePiece | None, locations: Iterable[Directive]
) -> Iterator[Directive]:
    """Yield locations whose content follows the check, and the named locations of the contents.

    Without a check, yield the locations unchanged. Requests reach internal and other named
    locations through one that checked them.
    """
    for location in locations:
        content = location.block or ()
        is_named = location.arguments[0].startswith("@")
        if check is None or is_named or simple_directive("internal") in content:
            yield location
            continue
        name = f"@gh_{names.name_digest('checked', *location.arguments)}"
        onward = simple_directive("try_files", names.NO_FILE, name)
        yield block("location", location.arguments, (*check.authorization, onward))
        yield block("location", (name,), (*check.permitted, *content))
