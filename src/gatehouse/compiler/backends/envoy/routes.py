"""One route of the IR as routes of Envoy, in evaluation order."""

from __future__ import annotations

from collections.abc import Sequence

from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy import (
    actions,
    cors,
    features,
    request_log,
    route_filters,
    route_match,
)
from gatehouse.compiler.backends.envoy.route_context import (
    EarlyRejection,
    EnvoyRouteContext,
    RequestCase,
)
from gatehouse.compiler.backends.failures import served_without, unserved
from gatehouse.compiler.backends.route_features import Phase
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.unsupported import Unsupported


def envoy_routes(
    context: EnvoyRouteContext, route: ir.Route, unsupported: list[Unsupported]
) -> list[components.Route]:
    """Return the Envoy routes of a route; one that is not supported answers 500, or calls with
    UNAVAILABLE, and is reported.
    """
    try:
        match = route_match.match(route.match)
    except Exception as error:
        # A match that cannot be generated never matches.
        unsupported.append(unserved(route.origin, error))
        return []
    try:
        unsupported += [
            served_without(route.origin, setting)
            for setting in features.ENVOY_ROUTE_FEATURES.findings(context, route)
        ]
        return _composed(context, route, match)
    except Exception as error:
        unsupported.append(unserved(route.origin, error))
        failed = components.Route(name=route.name, match=match)
        failed.direct_response.status = 503 if route.serves_calls else 500
        failed.MergeFrom(request_log.route_log(context, route).fields)
        request_log.add_reason(failed.metadata, LocalReason.INVALID_ROUTE)
        return [failed]


def _rejection(status: int, reason: LocalReason) -> components.Route:
    proto = components.Route()
    proto.match.prefix = "/"
    proto.direct_response.status = status
    request_log.add_reason(proto.metadata, reason)
    return proto


def dot_segments_route() -> components.Route:
    """Return the first route of a hostname that keeps slashes: it rejects paths with dot segments.

    Envoy has resolved all of these but those between encoded slashes. A backend that decodes a path
    would leave the one that a later route has matched.
    """
    slash, dot = "(?:/|%2[fF]|%5[cC])", r"(?:\.|%2[eE])"
    proto = _rejection(400, LocalReason.BAD_REQUEST)
    proto.match.safe_regex.regex = f".*{slash}{dot}{{1,2}}(?:{slash}.*)?"
    return proto


def several_hosts_route() -> components.Route:
    """Return the first route of an exact hostname: it rejects requests with several Host headers.

    Envoy joins them (RFC 9112, 3.2). If the first one has a port, the scope is that of its name.
    """
    proto = _rejection(400, LocalReason.BAD_REQUEST)
    proto.match.headers.add(name=":authority").string_match.contains = ","
    return proto


def not_found_route() -> components.Route:
    """Return the last route of a hostname; without it, other virtual hosts would be tried."""
    return _rejection(404, LocalReason.NO_ROUTE)


def unchecked_route() -> components.Route:
    """Return the only route of a hostname whose requests cannot be checked by the listener."""
    return _rejection(500, LocalReason.INVALID_ROUTE)


def _composed(
    context: EnvoyRouteContext, route: ir.Route, match: components.RouteMatch
) -> list[components.Route]:
    """Compose the features of a route around its action, whatever this is."""
    pieces = features.ENVOY_ROUTE_FEATURES.pieces(context, route)
    observed, checked = components.Route(name=route.name), components.Route()
    rejections: list[EarlyRejection] = []
    cases: Sequence[RequestCase] = ()
    for phase, piece in pieces:
        (observed if phase is Phase.OBSERVATION else checked).MergeFrom(piece.fields)
        rejections += piece.rejections
        cases = cases or piece.cases
    route_filters.place_filters(checked, pieces)
    checked.MergeFrom(observed)
    result = []
    for case in cases or (RequestCase(),):
        case_match = components.RouteMatch()
        case_match.CopyFrom(match)
        case_match.headers.extend(case.conditions)
        if case.preflight:
            proto = _with_condition(observed, case_match)
            proto.direct_response.status = 204
            cors.apply_cors(proto, case)
            result.append(proto)
            continue
        for rejection in rejections:
            proto = _with_condition(observed, case_match, rejection.condition)
            proto.direct_response.status = rejection.status
            request_log.add_reason(proto.metadata, rejection.reason)
            result.append(proto)
        proto = _with_condition(checked, case_match)
        actions.apply_action(proto, context, route)
        cors.apply_cors(proto, case)
        result.append(proto)
    return result


def _with_condition(
    base: components.Route,
    match: components.RouteMatch,
    condition: components.HeaderMatcher | None = None,
) -> components.Route:
    """Return a copy of a route for the requests that match, and meet a condition."""
    proto = components.Route(match=match)
    proto.MergeFrom(base)
    if condition is not None:
        proto.match.headers.append(condition)
    return proto
