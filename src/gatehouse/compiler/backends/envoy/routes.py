"""One route of the IR as routes of Envoy, in evaluation order."""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy import (
    actions,
    cors,
    load_balancing,
    route_filters,
    route_match,
)
from gatehouse.compiler.backends.envoy.route_context import Context
from gatehouse.compiler.backends.failures import served_without, unserved
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import Unsupported, UnsupportedSetting


def routes(
    context: Context, route: ir.Route, hostname: str, unsupported: list[Unsupported]
) -> list[components.Route]:
    """Return the Envoy routes of a route; one that is not supported answers 500 and is reported."""
    try:
        unsupported += [
            served_without(route.origin, each) for each in unsupported_settings(context, route)
        ]
        match = route_match.match(route.match)
    except Exception as error:
        # A match that cannot be generated never matches.
        unsupported.append(unserved(route.origin, error))
        return []
    try:
        return _cases(context, route, match, hostname)
    except Exception as error:
        unsupported.append(unserved(route.origin, error))
        failed = components.Route(name=route.name, match=match)
        failed.direct_response.status = 500
        return [failed]


def not_found() -> components.Route:
    """Return the last route of a hostname; without it, other virtual hosts would be tried."""
    proto = components.Route(match=components.RouteMatch(prefix="/"))
    proto.direct_response.status = 404
    return proto


def unsupported_settings(context: Context, route: ir.Route) -> list[UnsupportedSetting]:
    """Return the settings of a route that Envoy does not support."""
    findings = route_filters.unsupported(context, route)
    if isinstance(route.action, ir.Forward):
        for name in sorted(cluster_names(route.action)):
            if name in context.clusters:
                findings += load_balancing.unsupported(context.clusters[name].settings)
    return findings


def cluster_names(action: ir.Forward) -> frozenset[str]:
    """Return the names of all clusters that a route uses."""
    clusters = {backend.cluster for backend in action.backends}
    return frozenset(clusters | {mirror.cluster for mirror in action.mirrors})


def _cases(
    context: Context, route: ir.Route, match: components.RouteMatch, hostname: str
) -> list[components.Route]:
    result = []
    for case in cors.cases(route.cors, route.match.method):
        case_match = components.RouteMatch()
        case_match.CopyFrom(match)
        case_match.headers.extend(case.conditions)
        if not case.preflight:
            result += route_filters.rejections(route, case_match)
        proto = components.Route(name=route.name, match=case_match)
        if case.preflight:
            proto.direct_response.status = 204
        else:
            actions.serve(proto, context, route, hostname)
            route_filters.apply(proto, context, route)
        cors.apply(proto, case)
        result.append(proto)
    return result
