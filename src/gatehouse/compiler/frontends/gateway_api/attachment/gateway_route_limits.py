"""Limit of the routes of one Gateway, which its namespaces share.

:mod:`~gatehouse.compiler.frontends.gateway_api.fair_shares` has the order. A Gateway within its
limit costs nothing but the count.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby
from operator import itemgetter

from gatehouse.compiler.frontends.gateway_api.allowed_namespaces import admits
from gatehouse.compiler.frontends.gateway_api.attachment.named_routes import routes_of
from gatehouse.compiler.frontends.gateway_api.attachment.route_limits import (
    route_age,
    youngest_route,
)
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import gateway_limits
from gatehouse.compiler.frontends.gateway_api.fair_shares import Age, fair_numbers
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import listener_specs
from gatehouse.incremental.grouping import presence
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

_LIMIT = "routesPerGateway"
_Place = tuple[str, Age]
"""Namespace and age of a route."""


def is_exceeded(ask: Ask, gateway: Key) -> bool:
    """Return whether more routes name a Gateway than it may serve."""
    return len(ask(routes_of, gateway)) > ask(gateway_limits, gateway).of(_LIMIT)


def excess_message_at(ask: Ask, gateway: Key, key: Key) -> str:
    """Return the message about a route beyond the limit; empty for a route within it."""
    youngest = ask.entry(_youngest_routes, gateway, key=key[1])
    if youngest is None or ask(route_age, key) <= youngest:
        return ""
    excess = ask(gateway_limits, gateway).exceeded(_LIMIT, "number")
    return f"routes of Gateway {gateway[1]}/{gateway[2]}: {excess}"


def _youngest_routes(ask: Ask, gateway: Key) -> Table[str, Age]:
    """Return the youngest route that a Gateway serves of each namespace with excess routes.

    Routes of namespaces that no listener admits do not count, nor do those beyond the limit of
    their namespace.
    """
    ages: dict[str, list[Age]] = {}
    for namespace, group in groupby(ask(_places, gateway), itemgetter(0)):
        if _is_admitted(ask, gateway, namespace):
            youngest, own = ask(youngest_route, namespace), [age for _, age in group]
            ages[namespace] = own if youngest is None else own[: bisect_right(own, youngest)]
    numbers = fair_numbers(ages, ask(gateway_limits, gateway).of(_LIMIT))
    return Table(
        (namespace, own[number - 1] if number else ("", ()))
        for namespace, own in ages.items()
        if (number := numbers[namespace]) < len(own)
    )


def _is_admitted(ask: Ask, gateway: Key, namespace: str) -> bool:
    specs = ask(listener_specs, gateway)
    return any(admits(ask, spec.namespaces, namespace, spec.owner[1]) for spec in specs)


def _places(ask: Ask, gateway: Key) -> Table[_Place, bool]:
    """Return the routes of a Gateway, ordered by namespace and age."""
    ages = ask.map(route_age, ask(routes_of, gateway))
    return ask.group_by(ages, lambda route, age: ((route[1], age),), presence)
