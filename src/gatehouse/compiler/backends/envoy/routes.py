"""One route of the IR as routes of Envoy, in the order in which they are tried."""

from __future__ import annotations

from typing import Any

from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy import (
    actions,
    cors,
    load_balancing,
    route_filters,
    route_match,
)
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.backends.envoy.route_context import Context
from gatehouse.compiler.ir import http as ir

Unsupported = list[tuple[str, str]]


def routes(context: Context, route: ir.Route, hostname: str, unsupported: Unsupported) -> list[Any]:
    """Give a route's routes; what cannot be served answers 500, and that is said."""
    unsupported += [(ir.LEFT_OUT + route.name, why) for why in unsupported_features(context, route)]
    try:
        match = route_match.match(route.match)
    except InvalidValueError as error:
        # What cannot be matched is never matched.
        unsupported.append((route.name, str(error)))
        return []
    try:
        return _cases(context, route, match, hostname)
    except InvalidValueError as error:
        unsupported.append((route.name, str(error)))
        failed = components.Route(name=route.name, match=match)
        failed.direct_response.status = 500
        return [failed]


def not_found() -> Any:
    """Give the route behind all others of a name: no other name's are tried after it."""
    made = components.Route(match=components.RouteMatch(prefix="/"))
    made.direct_response.status = 404
    return made


def unsupported_features(context: Context, route: ir.Route) -> list[str]:
    """Say what of a route's settings Envoy leaves out."""
    found = route_filters.unsupported(context, route)
    if isinstance(route.action, ir.Forward):
        for name in sorted(cluster_names(route.action)):
            if name in context.clusters:
                found += load_balancing.unsupported(context.clusters[name].settings)
    return found


def cluster_names(action: ir.Forward) -> frozenset[str]:
    """Give every cluster that a route names."""
    found = {backend.cluster for backend in action.backends}
    return frozenset(found | {mirror.cluster for mirror in action.mirrors})


def _cases(context: Context, route: ir.Route, match: Any, hostname: str) -> list[Any]:
    found = []
    for case in cors.cases(route.cors, route.match.method):
        asked = components.RouteMatch()
        asked.CopyFrom(match)
        asked.headers.extend(case.asked)
        if not case.answered:
            found += route_filters.refusals(route, asked)
        made = components.Route(name=route.name, match=asked)
        if case.answered:
            made.direct_response.status = 204
        else:
            actions.serve(made, context, route, hostname)
            route_filters.apply(made, context, route)
        cors.apply(made, case)
        found.append(made)
    return found
