"""Actions of a route as locations: forward, redirect, respond."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.backends.nginx import (
    access_log,
    grpc_status,
    names,
    proxy_pass,
    quoting,
    rewriting,
    weighted_upstreams,
)
from gatehouse.compiler.backends.nginx.directives import block, simple_directive
from gatehouse.compiler.backends.nginx.features import compose
from gatehouse.compiler.backends.nginx.route_context import (
    Answer,
    NginxRouteContext,
    RoutePiece,
    ServedRoute,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason

_FIRST_SERVER_ERROR = 500


def action_locations(context: NginxRouteContext, route: ir.Route) -> ServedRoute:
    """Return the locations of a route. Raises InvalidValueError."""
    action = route.action
    context = msgspec.structs.replace(context, location=names.route(context.scope, route.name))
    if isinstance(action, ir.Forward):
        mixed = weighted_upstreams.shares(action, context.clusters)
        if not mixed and (len(action.backends) > 1 or action.failing):
            return _split(context, route, action)
        (backend, *_) = action.backends
        answering = tuple(cluster for cluster, _ in mixed) or (context.clusters[backend.cluster],)
        upstream = weighted_upstreams.shared_upstream(mixed) if mixed else None
        context = msgspec.structs.replace(
            context, backend=backend, answering=answering, upstream=upstream
        )
    piece = compose(context, route, _answer)
    return ServedRoute(context.location, piece, is_direct=not _is_rejected_before(route))


def _is_rejected_before(route: ir.Route) -> bool:
    """Return whether NGINX may answer 413 before it runs the ``set`` of a header that it adds."""
    action = route.action
    sessions = isinstance(action, ir.Forward) and any(one.persistence for one in action.backends)
    return bool(route.settings.client.body_size) and (sessions or route.cors is not None)


def failed_locations(context: NginxRouteContext, route: ir.Route) -> ServedRoute:
    """Return the locations of a route that cannot be generated: it answers with 500, or calls with
    UNAVAILABLE."""
    name = names.route(context.scope, route.name)
    named = access_log.log_piece(context, route).named
    failed = _own_answer(route, RoutePiece(), _FIRST_SERVER_ERROR, LocalReason.INVALID_ROUTE)
    content = (*named, *failed.piece.content)
    location = block("location", (name,), content)
    return ServedRoute(name, RoutePiece(content=content, locations=(location,)), is_direct=True)


def _split(context: NginxRouteContext, route: ir.Route, action: ir.Forward) -> ServedRoute:
    """Choose a backend by weight, in steps of 0.01 %."""
    variable = names.variable(context.scope, route.name, "split")
    pieces: list[RoutePiece] = []
    shares: list[tuple[str, int]] = []
    for number, backend in enumerate(action.backends, 1):
        chosen = msgspec.structs.replace(
            context,
            location=names.route(context.scope, route.name, number),
            backend=backend,
            answering=(context.clusters[backend.cluster],),
        )
        pieces.append(compose(chosen, route, _answer))
        shares.append((chosen.location, backend.weight))
    if action.failing:
        pieces.append(compose(context, route, _answer))
        shares.append((context.location, action.failing))
    rows = weighted_upstreams.split_rows(shares)
    pieces.append(RoutePiece(maps=(block("split_clients", ("$request_id", f"${variable}"), rows),)))
    return ServedRoute(f"${variable}", RoutePiece.joined(pieces))


def _answer(context: NginxRouteContext, route: ir.Route, features: RoutePiece) -> Answer:
    """Return the answer to requests that pass all checks. Raises InvalidValueError."""
    match route.action:
        case ir.Forward() as action if context.backend is not None:
            (cluster, *_) = context.answering
            if cluster.endpoints:
                return proxy_pass.forward(context, route, action, context.backend, features)
            return _own_answer(route, features, 503, LocalReason.NO_ENDPOINT)
        case ir.Forward():
            return _own_answer(route, features, 500, LocalReason.INVALID_ROUTE)
        case ir.Redirect() as action:
            return _redirect(route, features, action)
        case ir.Respond(status, calls):
            is_error = calls or status >= _FIRST_SERVER_ERROR
            reason = LocalReason.INVALID_ROUTE if is_error else None
            return _own_answer(route, features, status, reason)


def _own_answer(
    route: ir.Route, features: RoutePiece, status: int, reason: LocalReason | None = None
) -> Answer:
    """Return an answer of NGINX itself: a status, or UNAVAILABLE to calls."""
    logged = () if reason is None else (access_log.reason_variable(reason),)
    if route.serves_calls:
        return Answer(RoutePiece(content=(*logged, *grpc_status.unavailable_location())))
    content = simple_directive("return", str(status))
    return Answer(RoutePiece(content=(*features.added, *features.snippets, *logged, content)))


def _redirect(route: ir.Route, features: RoutePiece, action: ir.Redirect) -> Answer:
    scheme = action.scheme or "$scheme"
    host = quoting.quote_text_literal(action.hostname or "", "hostname of a redirect")[1:-1]
    port = f":{action.port}" if action.port is not None else ""
    path = rewriting.redirect_location(action.path, route.match.path)
    url = quoting.fitting(
        f'"{scheme}://{host or "$host"}{port}{path.inner}"', "Location of a redirect"
    )
    content = simple_directive("return", str(action.status), url)
    return Answer(
        RoutePiece(
            variables=path.directives, content=(*features.added, *features.snippets, content)
        )
    )
