"""Features of routes in NGINX, and their composition around every kind of answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gatehouse.compiler.backends.literal_values import literal_values
from gatehouse.compiler.backends.nginx import (
    access_log,
    authentication,
    client_addresses,
    compression,
    cors,
    external_auth,
    grpc_status,
    headers,
    names,
    rate_limits,
    retries,
    session_persistence,
    snippets,
    traces,
    traffic_settings,
    upstreams,
)
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    DirectiveNode,
    block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.route_context import Answer, NginxRouteContext, RoutePiece
from gatehouse.compiler.backends.route_features import Phase, RouteFeature, RouteFeatures
from gatehouse.compiler.backends.sessions import unsupported_session
from gatehouse.compiler.ir import http as ir

NGINX_ROUTE_FEATURES: RouteFeatures[NginxRouteContext, RoutePiece] = RouteFeatures(
    (
        RouteFeature("access log", Phase.OBSERVATION, access_log.log_piece),
        RouteFeature("spans", Phase.OBSERVATION, traces.spans_piece, traces.unsupported_tracing),
        RouteFeature("CORS", Phase.PREFLIGHT, cors.cors_piece),
        RouteFeature("client addresses", Phase.LIMITS, client_addresses.addresses_piece),
        # NGINX itself rejects by the Content-Length before it counts a request.
        RouteFeature("body limit", Phase.LIMITS, traffic_settings.body_limit_piece),
        RouteFeature(
            "rate limits",
            Phase.LIMITS,
            rate_limits.rate_limits_piece,
            rate_limits.unsupported_shared_limits,
        ),
        RouteFeature(
            "client settings",
            Phase.LIMITS,
            traffic_settings.client_piece,
            traffic_settings.unsupported_client,
        ),
        RouteFeature(
            "authorization server", Phase.AUTHORIZATION, external_auth.authorization_piece
        ),
        # Claims override the headers of an authorization server, which knows less of the user.
        RouteFeature("authentication", Phase.AUTHENTICATION, authentication.authentication_piece),
        RouteFeature(
            "session",
            Phase.REQUEST,
            session_persistence.session_piece,
            lambda _, route: unsupported_session(route.action),
        ),
        RouteFeature(
            "literal values", Phase.REQUEST, unsupported=lambda _, route: literal_values(route)
        ),
        RouteFeature(
            "response headers",
            Phase.RESPONSE,
            headers.response_headers_piece,
            headers.unsupported_response_headers,
        ),
        RouteFeature("compression", Phase.RESPONSE, compression.compression_piece),
        # A status of gRPC replaces what all checks answer.
        RouteFeature("gRPC calls", Phase.RESPONSE, grpc_status.calls_piece),
        RouteFeature("retries", Phase.BACKEND, unsupported=retries.unsupported_retry),
        RouteFeature("clusters", Phase.BACKEND, unsupported=upstreams.unsupported_clusters),
        # Last, so that users can add to everything before.
        RouteFeature("snippets", Phase.BACKEND, snippets.snippets_piece),
    )
)
"""All features of routes. Directives of one slot are in this order."""


def compose(
    context: NginxRouteContext,
    route: ir.Route,
    answer: Callable[[NginxRouteContext, ir.Route, RoutePiece], Answer],
) -> RoutePiece:
    """Return the locations of an answer with the features of its route around it.

    The first location has the content. Raises InvalidValueError.

    NGINX runs ``return`` before limits and access checks. So these are in a location that leads to
    the one of such an answer: a location that looks for a file first does not skip them. If a 401
    of a backend leads to a retry, the location of the login is another one, too.
    """
    features = RoutePiece.joined(
        [piece for _, piece in NGINX_ROUTE_FEATURES.pieces(context, route)]
    )
    action = answer(context, route, features)
    own, attempts = action.piece, action.attempts
    first: tuple[DirectiveNode, ...] = (*features.preflight, *features.login)
    before = (*features.spans, *features.variables)
    limits = (*features.limits, *features.addresses)
    checks = (*features.rejections, *limits, *features.settings, *features.checks)
    late = limits or features.login or features.checks or features.snippets
    is_apart = bool(late if action.is_early else attempts is not None and features.login)
    if action.is_early and late:
        after = (*features.added, *features.failures, *features.snippets)
        first = (*first, *before, *checks, *after)
        nodes = (*features.spans, *own.variables, *own.content)
    else:
        first = (*first, *(_rejected(features) if is_apart else ()))
        nodes = (*before, *own.variables, *checks, *own.content)
    nodes = nodes if is_apart else (*first, *nodes)
    piece = RoutePiece(content=nodes) if attempts is None else attempts(nodes)
    if is_apart:
        piece = _in_named_location(names.guarded_location(context.location), first, piece)
    if features.authorization:
        piece = _authorized(context, features, piece)
    content = (*features.named, *piece.content)
    location = block("location", (context.location,), content)
    return RoutePiece(
        content=content,
        needs=(*features.needs, *own.needs, *piece.needs),
        maps=(*features.maps, *own.maps),
        locations=(location, *piece.locations, *features.locations),
        subrequests=(*own.subrequests, *features.subrequests),
        fixed=(*piece.fixed, *features.fixed),
    )


def _authorized(context: NginxRouteContext, features: RoutePiece, piece: RoutePiece) -> RoutePiece:
    """Put the check by an authorization server before a piece.

    In a location of its own, it denies requests before other checks, and never takes a status of
    these or of a backend for one of the server.
    """
    piece = msgspec.structs.replace(piece, content=(*features.permitted, *piece.content))
    limits = (*features.preflight, *features.rejections, *features.limits)
    name, first = names.authorized_location(context.location), features.authorization
    if features.addresses:
        piece = _in_named_location(name, first, piece)
        name = names.admitted_location(context.location)
        first = _rejected(features)
    return _in_named_location(name, (*limits, *first), piece)


def _rejected(features: RoutePiece) -> tuple[Directive, ...]:
    """Return the checks of addresses, with what changes the response to rejected requests."""
    return (*features.addresses, *features.added, *features.failures)


def _in_named_location(name: str, first: Iterable[DirectiveNode], piece: RoutePiece) -> RoutePiece:
    """Put ``first`` into a location that leads to a named location ``name`` with the content."""
    onward = simple_directive("try_files", names.NO_FILE, name)
    location = block("location", (name,), piece.content)
    return msgspec.structs.replace(
        piece, content=(*first, onward), locations=(location, *piece.locations)
    )
