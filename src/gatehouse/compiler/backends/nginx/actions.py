"""Actions of a route as the content of a location: forward, redirect, respond."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.backends.nginx import (
    access_log,
    access_phase,
    cors,
    grpc_status,
    headers,
    names,
    proxy_pass,
    quoting,
    rewriting,
    session_persistence,
    traces,
    weighted_upstreams,
)
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple_directive
from gatehouse.compiler.backends.nginx.route_context import Body, NginxRouteContext, ServedRoute
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason

_FIRST_SERVER_ERROR = 500


def action_locations(context: NginxRouteContext, route: ir.Route) -> ServedRoute:
    """Return the locations of a route. Raises InvalidValueError."""
    logged: tuple[Directive, ...] = ()
    match route.action:
        case ir.Forward() if mixed := weighted_upstreams.shares(route.action, context.clusters):
            name = weighted_upstreams.weighted_upstream_name(mixed)
            first = route.action.backends[0]
            body = proxy_pass.forward_directives(context, route, route.action, first, name)
            logged = access_log.backend_variables(cluster for cluster, _ in mixed)
        case ir.Forward(backends) if len(backends) > 1 or route.action.failing:
            return _split(context, route, route.action)
        case ir.Forward(backends):
            body = proxy_pass.forward_directives(context, route, route.action, backends[0])
            logged = access_log.backend_variables([context.clusters[backends[0].cluster]])
        case ir.Redirect():
            body = access_phase.guard_response(context, route, _redirect(route, route.action))
        case ir.Respond(grpc=True):
            body = Body(grpc_status.unavailable_location())
            logged = (access_log.reason_variable(LocalReason.INVALID_ROUTE),)
        case ir.Respond(status):
            body = _plain(route, simple_directive("return", str(status)))
            logged = (
                (access_log.reason_variable(LocalReason.INVALID_ROUTE),) if status >= 500 else ()
            )
    name = names.route(context.scope, route.name)
    inner = (*_named(context, route, body), *logged, *body.inner)
    location = block("location", (name,), inner)
    locations = (location, *body.locations)
    direct = None if _is_rejected_before(route) else inner
    return ServedRoute(name, locations, body.maps, direct, body.subrequests, body.fixed)


def _is_rejected_before(route: ir.Route) -> bool:
    """Return whether NGINX may answer 413 before it runs the ``set`` of a header that it adds."""
    persistence = isinstance(route.action, ir.Forward) and route.action.persistence is not None
    return bool(route.settings.client.body_size) and (persistence or route.cors is not None)


def _named(context: NginxRouteContext, route: ir.Route, body: Body) -> tuple[Directive, ...]:
    """Return the directives that name the route in the access log, and in spans unless the content
    of its location does."""
    spans = traces.span_directives(context.traces, route)
    present = not spans or spans[0] in body.inner
    return (*access_log.route_variables(route), *(() if present else spans))


def failed_locations(context: NginxRouteContext, route: ir.Route) -> ServedRoute:
    """Return the locations of a route that cannot be generated: it answers with 500, or calls with
    UNAVAILABLE."""
    name = names.route(context.scope, route.name)
    failed = (simple_directive("return", "500"),)
    inner = (
        *access_log.route_variables(route),
        access_log.reason_variable(LocalReason.INVALID_ROUTE),
        *(grpc_status.unavailable_location() if route.serves_calls else failed),
    )
    return ServedRoute(name, (block("location", (name,), inner),), (), inner)


def _split(context: NginxRouteContext, route: ir.Route, action: ir.Forward) -> ServedRoute:
    """Choose a backend by weight, in steps of 0.01 %."""
    variable = names.variable(context.scope, route.name, "split")
    shares: list[tuple[str, int]] = []
    locations: list[Directive] = []
    maps: list[Directive] = []
    key = "$request_id"
    if action.persistence is not None:
        key, session_maps = session_persistence.chooser(action.persistence)
        maps += session_maps
    subrequests: list[Directive] = []
    fixed: list[Directive] = []
    for number, backend in enumerate(action.backends, 1):
        destination = names.route(context.scope, route.name, number)
        body = proxy_pass.forward_directives(context, route, action, backend)
        maps += body.maps
        subrequests += body.subrequests
        fixed += body.fixed
        logged = access_log.backend_variables([context.clusters[backend.cluster]])
        inner = (*_named(context, route, body), *logged, *body.inner)
        locations += [block("location", (destination,), inner), *body.locations]
        shares.append((destination, backend.weight))
    if action.failing:
        error = names.UNAVAILABLE if action.grpc else names.INTERNAL_ERROR
        shares.append((error, action.failing))
    rows = weighted_upstreams.split_rows(shares)
    maps.append(block("split_clients", (key, f"${variable}"), rows))
    return ServedRoute(
        f"${variable}", tuple(locations), tuple(maps), None, tuple(subrequests), tuple(fixed)
    )


def _redirect(route: ir.Route, action: ir.Redirect) -> Body:
    scheme = action.scheme or "$scheme"
    host = quoting.quote_text_literal(action.hostname or "", "hostname of a redirect")[1:-1]
    port = f":{action.port}" if action.port is not None else ""
    path = rewriting.redirect_location(action.path, route.match.path)
    url = quoting.fitting(
        f'"{scheme}://{host or "$host"}{port}{path.inner}"', "Location of a redirect"
    )
    body = _plain(route, simple_directive("return", str(action.status), url))
    return msgspec.structs.replace(body, inner=(*path.directives, *body.inner))


def _plain(route: ir.Route, response: Directive) -> Body:
    """Return a response that NGINX generates itself."""
    shared = cors.shared(route.cors)
    added = [*headers.added(route.response_headers), *shared.added]
    return Body((*shared.preflight, *added, response), shared.maps)
