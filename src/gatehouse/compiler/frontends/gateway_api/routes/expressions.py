"""Regular expressions in the matches of routes: their number, and the ceiling of a Gateway."""

from __future__ import annotations

from gatehouse.apis import routes as api
from gatehouse.compiler.frontends.gateway_api.attachment.named_routes import expression_routes_of
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import parent_results
from gatehouse.compiler.frontends.gateway_api.attachment.route_limits import route_age
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import gateway_limits
from gatehouse.compiler.frontends.gateway_api.fair_shares import SharedClaim, exceeding_claims
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.routes import grpc
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

_EXPRESSION = "RegularExpression"
_OF_ROUTE, _OF_GATEWAY = "regularExpressions", "regularExpressionsPerGateway"


def http_rules(route: api.RouteObject) -> tuple[api.RouteRule, ...]:
    """Return the rules of an HTTPRoute, or those of a GRPCRoute as HTTP; none for other routes."""
    if isinstance(route, api.GRPCRoute):
        return tuple(grpc.as_http(rule) for rule in route.spec.rules)
    return route.spec.rules if isinstance(route, api.HTTPRoute) else ()


def number_of_route(route: api.RouteObject) -> int:
    """Return the number of regular expressions in the matches of a route."""
    return sum(map(number_of_rule, http_rules(route)))


def number_of_rule(rule: api.RouteRule) -> int:
    """Return the number of regular expressions in the matches of a rule."""
    # Without generators, since this runs for every rule of every new route.
    number = 0
    for match in rule.matches:
        number += match.path.type == _EXPRESSION
        if match.headers or match.query_params:
            items = (*match.headers, *match.query_params)
            number += sum(item.type == _EXPRESSION for item in items)
    return number


def expressions_message(ask: Ask, place: GatewayObject, number: int) -> str:
    """Return the message about a rule whose regular expressions are above a ceiling; else empty.

    ``number``: regular expressions of the route up to this rule.
    """
    gateway, key = place
    limits = ask(gateway_limits, gateway)
    if excess := limits.excess(_OF_ROUTE, number):
        return f"number of regular expressions up to this rule: {excess}"
    if ask.entry(_excess, gateway, key=key):
        excess = limits.exceeded(_OF_GATEWAY, "number")
        return f"regular expressions of Gateway {gateway[1]}/{gateway[2]}: {excess}"
    return ""


def _excess(ask: Ask, gateway: Key) -> Table[Key, bool]:
    """Return the routes whose regular expressions a Gateway does not serve."""
    numbers = ask.map_keys(_claimed, expression_routes_of, gateway)
    ceiling = ask(gateway_limits, gateway).of(_OF_GATEWAY)
    if sum(numbers.values()) <= ceiling:
        return Table()
    claims = (
        SharedClaim(ask(route_age, key), {_OF_GATEWAY: number}) for key, number in numbers.items()
    )
    return Table(dict.fromkeys(exceeding_claims(claims, {_OF_GATEWAY: ceiling}), True))


def _claimed(ask: Ask, gateway: Key, key: Key) -> int | None:
    """Return the number of a route's regular expressions; None if the route is not attached."""
    route, results = ask.read(key), ask(parent_results, key)
    if not any(entry.gateway == gateway and entry.refusal is None for entry in results):
        return None
    return min(number_of_route(route), ask(gateway_limits, gateway).of(_OF_ROUTE))
