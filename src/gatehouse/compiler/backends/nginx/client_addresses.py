"""Addresses of clients that a route serves, or not: the access module of NGINX."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx.directives import simple_directive
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.ir.http import Route


def addresses_piece(_context: NginxRouteContext, route: Route) -> RoutePiece | None:
    """Return the rules of which NGINX follows the first that matches."""
    addresses = route.client_addresses
    if addresses is None:
        return None
    rules = [simple_directive("deny", network) for network in addresses.deny]
    rules += [simple_directive("allow", network) for network in addresses.allow]
    if addresses.allow:
        rules.append(simple_directive("deny", "all"))
    return RoutePiece(addresses=tuple(rules))
