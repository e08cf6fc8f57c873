"""Limit of the routes of one namespace. The oldest routes are served, the others are not.

Each route takes memory of the controller, which all tenants share. The limit holds before anything
is derived from a route but its age. Namespaces within their limit cost nothing but the count.
"""

from __future__ import annotations

from itertools import islice

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.fair_shares import Age
from gatehouse.compiler.frontends.gateway_api.inputs import routes_by_namespace
from gatehouse.incremental.grouping import presence
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

_LIMIT = "routesPerNamespace"


def excess_message(ask: Ask, key: Key) -> str:
    """Return the message about a route beyond the limit; empty for a route within it."""
    youngest = ask(youngest_route, key[1])
    if youngest is None or ask(route_age, key) <= youngest:
        return ""
    return f"routes of namespace {key[1]}: {settings(ask).limits.exceeded(_LIMIT, 'number')}"


def youngest_route(ask: Ask, namespace: str) -> Age | None:
    """Return the youngest route that is served; None while the namespace is within the limit."""
    limit = settings(ask).limits.of(_LIMIT)
    if len(ask.read(routes_by_namespace(namespace))) <= limit:
        return None
    ages = ask(_by_age, namespace)
    return next(islice(ages, limit - 1, None)) if limit else ("", ())


def route_age(ask: Ask, key: Key) -> Age:
    """Return the age of a route."""
    route = ask.read(key)
    created = route.metadata.creation_timestamp if isinstance(route, routes.RouteObject) else ""
    return (created, key)


def _by_age(ask: Ask, namespace: str) -> Table[Age, bool]:
    members: Table[Key, Key] = ask.read(routes_by_namespace(namespace))
    return ask.group_by(ask.map(route_age, members), lambda _, age: (age,), presence)
