"""What a route does, as the inside of a location: forward, redirect, respond."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.backends.nginx import headers, names, quoting, rewriting
from gatehouse.backends.nginx.capabilities import Capabilities
from gatehouse.backends.nginx.quoting import UnwritableError
from gatehouse.backends.nginx.tree import Directive, Node, Raw, block, simple
from gatehouse.ir import http as ir

Clusters = Mapping[str, ir.Cluster]


class Body(msgspec.Struct, frozen=True):
    """The inside of a location, and what it needs around it."""

    inner: tuple[Node, ...]
    maps: tuple[Directive, ...] = ()


class Served(msgspec.Struct, frozen=True):
    """A route as locations. ``destination`` leads to it: a named location or a variable."""

    destination: str
    locations: tuple[Directive, ...]
    maps: tuple[Directive, ...] = ()
    direct: tuple[Node, ...] | None = None
    """The inside of its only location, to be put where no choice is left to make."""


class Context(msgspec.Struct, frozen=True):
    """What a route is served in."""

    scope: str
    clusters: Clusters
    capabilities: Capabilities


def serve(context: Context, route: ir.Route) -> Served:
    """Give a route's locations; raises UnwritableError."""
    match route.action:
        case ir.Forward() if sum(backend.weight > 0 for backend in route.action.backends) > 1:
            return _split(context, route, route.action)
        case ir.Forward():
            body = _forward_one(context, route, route.action)
        case ir.Redirect():
            body = _redirect(context, route, route.action)
        case ir.Respond(status):
            edit = headers.response(route.response_headers)
            body = Body((*edit, simple("return", str(status))))
    name = names.route(context.scope, route.name)
    return Served(name, (block("location", (name,), body.inner),), body.maps, body.inner)


def failed(context: Context, route: ir.Route) -> Served:
    """Give a route that cannot be written: it answers 500."""
    name = names.route(context.scope, route.name)
    inner = (simple("return", "500"),)
    return Served(name, (block("location", (name,), inner),), (), inner)


def _forward_one(context: Context, route: ir.Route, action: ir.Forward) -> Body:
    backend = next((entry for entry in action.backends if entry.weight > 0), None)
    if backend is None or not backend.cluster:
        return Body((*headers.response(route.response_headers), simple("return", "500")))
    return _forward(context, route, action, backend)


def _forward(context: Context, route: ir.Route, action: ir.Forward, backend: ir.Backend) -> Body:
    cluster = context.clusters[backend.cluster]
    response = headers.response(headers.joined(route.response_headers, backend.response_headers))
    if not cluster.endpoints:
        return Body((*response, simple("return", "503")))
    request = headers.request(
        headers.joined(route.request_headers, backend.request_headers),
        action.rewrite.hostname,
        f"{context.scope}/{route.name}/{backend.cluster}",
    )
    snippet = (Raw(route.snippet),) if route.snippet else ()
    return Body(
        (
            *rewriting.rewrites(action.rewrite.path, route.match.path),
            *request.directives,
            *response,
            *_timeouts(action),
            *_protocol(context, cluster),
            *snippet,
            simple("proxy_pass", quoting.word(f"http://{cluster.name}")),
        ),
        request.maps,
    )


def _protocol(context: Context, cluster: ir.Cluster) -> list[Directive]:
    if cluster.protocol == "http":
        return []
    if not context.capabilities.http2_upstreams:
        raise UnwritableError("HTTP/2 to backends needs NGINX 1.29.4 or newer")
    return [simple("proxy_http_version", "2")]


def _timeouts(action: ir.Forward) -> list[Directive]:
    """NGINX limits each wait, not the whole exchange: the tighter of both limits is used."""
    given = [seconds for seconds in (action.request_timeout, action.backend_timeout) if seconds]
    if not given:
        return []
    value = f"{max(1, round(min(given) * 1000))}ms"
    directives = ("proxy_connect_timeout", "proxy_send_timeout", "proxy_read_timeout")
    return [simple(directive, value) for directive in directives]


def _split(context: Context, route: ir.Route, action: ir.Forward) -> Served:
    """Choose a backend by weight, in steps of 0.01 %."""
    backends = [backend for backend in action.backends if backend.weight > 0]
    total = sum(backend.weight for backend in backends)
    variable = names.variable(context.scope, route.name, "split")
    rows: list[Directive] = []
    locations: list[Directive] = []
    maps: list[Directive] = []
    for number, backend in enumerate(backends):
        destination = names.FAILED
        if backend.cluster:
            destination = names.route(context.scope, route.name, number + 1)
            body = _forward(context, route, action, backend)
            maps += body.maps
            locations.append(block("location", (destination,), body.inner))
        share = "*" if number == len(backends) - 1 else f"{backend.weight * 100 / total:.2f}%"
        if share != "0.00%":
            rows.append(simple(share, destination))
    maps.append(block("split_clients", ("$request_id", f"${variable}"), rows))
    return Served(f"${variable}", tuple(locations), tuple(maps))


def _redirect(context: Context, route: ir.Route, action: ir.Redirect) -> Body:
    scheme = action.scheme or "$scheme"
    host = quoting.text(action.hostname)[1:-1] if action.hostname else "$host"
    port = f":{action.port}" if action.port is not None else ""
    scope = f"{context.scope}/{route.name}"
    path = rewriting.location(action.path, route.match.path, scope)
    url = f'"{scheme}://{host}{port}{path.inner}"'
    edit = headers.response(route.response_headers)
    return Body((*edit, simple("return", str(action.status), url)), path.maps)
