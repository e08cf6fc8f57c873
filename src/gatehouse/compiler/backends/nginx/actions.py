"""Actions of a route as the content of a location: forward, redirect, respond."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import (
    access_phase,
    cors,
    grpc_status,
    headers,
    names,
    proxy_pass,
    quoting,
    rewriting,
    weighted_upstreams,
)
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.backends.nginx.route_context import Body, Context, Served
from gatehouse.compiler.ir import http as ir


def serve(context: Context, route: ir.Route) -> Served:
    """Return the locations of a route. Raises InvalidValueError."""
    match route.action:
        case ir.Forward() if mixed := weighted_upstreams.shares(route.action, context.clusters):
            name = weighted_upstreams.upstream_name(mixed)
            first = route.action.backends[0]
            body = proxy_pass.forward(context, route, route.action, first, name)
        case ir.Forward(backends) if len(backends) > 1 or route.action.failing:
            return _split(context, route, route.action)
        case ir.Forward(backends):
            body = proxy_pass.forward(context, route, route.action, backends[0])
        case ir.Redirect():
            body = access_phase.guard_response(
                context, route, _redirect(context, route, route.action)
            )
        case ir.Respond(grpc=True):
            body = Body(grpc_status.unavailable())
        case ir.Respond(status):
            body = _plain(route, simple("return", str(status)))
    name = names.route(context.scope, route.name)
    location = block("location", (name,), body.inner)
    return Served(name, (location, *body.locations), body.maps, body.inner, body.fixed)


def failed(context: Context, route: ir.Route) -> Served:
    """Return the locations of a route that cannot be generated: it answers with 500."""
    name = names.route(context.scope, route.name)
    inner = (simple("return", "500"),)
    return Served(name, (block("location", (name,), inner),), (), inner)


def _split(context: Context, route: ir.Route, action: ir.Forward) -> Served:
    """Choose a backend by weight, in steps of 0.01 %."""
    variable = names.variable(context.scope, route.name, "split")
    shares: list[tuple[str, int]] = []
    locations: list[Directive] = []
    maps: list[Directive] = []
    fixed: list[Directive] = []
    for number, backend in enumerate(action.backends, 1):
        destination = names.route(context.scope, route.name, number)
        body = proxy_pass.forward(context, route, action, backend)
        maps += body.maps
        fixed += body.fixed
        locations += [block("location", (destination,), body.inner), *body.locations]
        shares.append((destination, backend.weight))
    if action.failing:
        error = names.UNAVAILABLE if action.grpc else names.INTERNAL_ERROR
        shares.append((error, action.failing))
    rows = weighted_upstreams.split_rows(shares)
    maps.append(block("split_clients", (_chooser(route, action), f"${variable}"), rows))
    return Served(f"${variable}", tuple(locations), tuple(maps), fixed=tuple(fixed))


def _chooser(route: ir.Route, action: ir.Forward) -> str:
    """Return the key that selects the backend: random, or the session if there is persistence."""
    if action.persistence is None:
        return "$request_id"
    return f"${names.session_variable(action.persistence, route.name)}"


def _redirect(context: Context, route: ir.Route, action: ir.Redirect) -> Body:
    scheme = action.scheme or "$scheme"
    host = quoting.text(action.hostname)[1:-1] if action.hostname else "$host"
    port = f":{action.port}" if action.port is not None else ""
    scope = f"{context.scope}/{route.name}"
    path = rewriting.location(action.path, route.match.path, scope)
    url = f'"{scheme}://{host}{port}{path.inner}"'
    body = _plain(route, simple("return", str(action.status), url))
    return Body(body.inner, (*body.maps, *path.maps))


def _plain(route: ir.Route, response: Directive) -> Body:
    """Return a response that NGINX generates itself."""
    shared = cors.shared(route.cors)
    added = [*headers.added(route.response_headers), *shared.added]
    return Body((*shared.preflight, *added, response), shared.maps)
