"""One route of the IR as routes of Envoy, in evaluation order."""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy import (
    actions,
    cors,
    load_balancing,
    request_log,
    retries,
    route_filters,
    route_match,
    session_persistence,
    traces,
)
from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.backends.failures import served_without, unserved
from gatehouse.compiler.backends.sessions import served_route, unsupported_session
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason, rule_text
from gatehouse.compiler.ir.unsupported import Unsupported, UnsupportedSetting


def envoy_routes(
    context: EnvoyRouteContext, route: ir.Route, hostname: str, unsupported: list[Unsupported]
) -> list[components.Route]:
    """Return the Envoy routes of a route; one that is not supported answers 500, or calls with
    UNAVAILABLE, and is reported.

    ``hostname``: empty for a hostname with a wildcard.
    """
    route, session = served_route(route, session_persistence.check_envoy_session)
    if session is not None:
        unsupported.append(served_without(route.origin, session))
    try:
        unsupported += [
            served_without(route.origin, unsupported_setting)
            for unsupported_setting in _unsupported_settings(context, route, hostname)
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
        failed.direct_response.status = 503 if route.serves_calls else 500
        request_log.add_route(failed.metadata, rule_text(route.name))
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


def _unsupported_settings(
    context: EnvoyRouteContext, route: ir.Route, hostname: str
) -> list[UnsupportedSetting]:
    """Return the settings of a route that Envoy does not support."""
    findings = route_filters.unsupported_filters(context, route)
    findings += traces.unsupported_context(route.settings.tracing)
    findings += traces.unsupported_spans(route.settings.tracing, hostname)
    findings += unsupported_session(route.action)
    for name in sorted(route.clusters):
        if name in context.clusters:
            settings = context.clusters[name].settings
            findings += load_balancing.unsupported_balancing(settings)
            findings += retries.unsupported_budget_interval(settings)
    return findings


def _cases(
    context: EnvoyRouteContext, route: ir.Route, match: components.RouteMatch, hostname: str
) -> list[components.Route]:
    result = []
    by_session = []
    if isinstance(route.action, ir.Forward) and route.action.persistence is not None:
        by_session = session_persistence.backends_by_session(route.action)
    for case in cors.cases(route.cors, route.match.method):
        case_match = components.RouteMatch()
        case_match.CopyFrom(match)
        case_match.headers.extend(case.conditions)
        if case.preflight:
            proto = components.Route(name=route.name, match=case_match)
            proto.direct_response.status = 204
            cors.apply_cors(proto, case)
            result.append(proto)
            continue
        result += route_filters.rejections(route, case_match)
        for condition, action in (*by_session, (None, route.action)):
            proto = components.Route(name=route.name, match=case_match)
            if condition is not None:
                proto.match.headers.append(condition)
            actions.apply_action(proto, context, route, action, hostname)
            route_filters.apply_filters(proto, context, route)
            cors.apply_cors(proto, case)
            result.append(proto)
    for proto in result:
        request_log.add_route(proto.metadata, rule_text(route.name))
        traces.apply_traces(proto, route)
    return result
