"""Forwarding to one backend over HTTP, HTTP/2 or gRPC: TLS, timeouts, mirrors and retries."""

from __future__ import annotations

import functools

import msgspec

from gatehouse.compiler.backends.nginx import (
    api_keys,
    grpc_status,
    headers,
    mirrors,
    retries,
    rewriting,
    session_persistence,
    traffic_settings,
)
from gatehouse.compiler.backends.nginx.backend_protocol import (
    http_version,
    module_of,
    pass_directive,
    tls_directives,
)
from gatehouse.compiler.backends.nginx.directives import Directive, simple_directive
from gatehouse.compiler.backends.nginx.route_context import Answer, NginxRouteContext, RoutePiece
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import ProxySettings

UNLIMITED = "24h"
"""Stands for an unlimited timeout, which NGINX does not have."""


def forward(
    context: NginxRouteContext,
    route: ir.Route,
    action: ir.Forward,
    backend: ir.Backend,
    features: RoutePiece,
) -> Answer:
    """Return the answer of a backend that has endpoints. Raises InvalidValueError."""
    (cluster, *_) = context.answering
    module = module_of(cluster)
    edit = api_keys.without_keys(route).then(backend.request_headers)
    rest = api_keys.without_key_directives(route)
    copies = mirrors.mirror_directives(context, route, action, edit, features)
    content = (
        *copies.variables,
        *rewriting.rewrites(action.rewrite.path, route.match.path),
        *copies.content,
        *headers.hidden(module, features.hidden),
        *features.added,
        *traffic_settings.proxying(module, route.settings.proxy.nginx),
        *_limits(module, action, route.settings.proxy),
        *_never_again(module, action),
        *features.failures,
        *(grpc_status.connection_failures() if action.grpc else ()),
        *http_version(context, cluster),
        *tls_directives(module, cluster),
        *features.snippets,
    )
    shared = () if context.upstream is None else (context.upstream,)
    piece = RoutePiece(
        variables=(
            *rest.variables,
            *_request_headers(context, module, edit, action, features),
        ),
        content=content,
        maps=copies.maps,
        subrequests=copies.subrequests,
        needs=(*shared, *rest.needs, *(headers.ADDITION_NEEDS if edit.add else ())),
    )
    own = session_persistence.session_upstream(cluster.name, backend.persistence)
    sent = pass_directive(cluster, own if context.upstream is None else context.upstream[1])
    if action.retry is None or not action.retry.attempts:
        piece = msgspec.structs.replace(piece, content=(*content, sent))
        return Answer(piece, is_early=False)
    attempts = functools.partial(
        retries.attempts, context, route, backend, module, action, action.retry, sent
    )
    return Answer(piece, is_early=False, attempts=attempts)


def _request_headers(
    context: NginxRouteContext,
    module: str,
    edit: ir.HeaderEdit,
    action: ir.Forward,
    features: RoutePiece,
) -> tuple[Directive, ...]:
    return headers.request_headers(
        *(module, edit, action.rewrite.hostname, features.claims),
        *(context.removed_headers, features.cookie, context.authorized),
    )


def _never_again(module: str, action: ir.Forward) -> list[Directive]:
    """Return the directive that disables retries, if the rule does."""
    if action.retry is None or action.retry.attempts:
        return []
    return [simple_directive(f"{module}_next_upstream", "off")]


def _limits(module: str, action: ir.Forward, default: ProxySettings) -> list[Directive]:
    """Return timeouts: the shorter limit for each part of the exchange, which NGINX cannot limit
    as a whole.

    NGINX waits once for the connection and once for the complete header of the response, but for
    each part of a body. ``default``: settings of a rule without timeouts.
    """
    timeouts = [seconds for seconds in (action.request_timeout, action.backend_timeout) if seconds]
    if timeouts:
        value = f"{max(1, round(min(timeouts) * 1000))}ms"
        waits = [
            simple_directive(f"{module}_{kind}_timeout", value)
            for kind in ("connect", "send", "read")
        ]
        if action.retry is not None:
            # NGINX's own retries are off.
            return waits
        if 0 < action.request_timeout < traffic_settings.NEXT_ENDPOINT_SECONDS:
            total = f"{max(1, round(action.request_timeout * 1000))}ms"
            waits.append(simple_directive(f"{module}_next_upstream_timeout", total))
        # A retry would have its own timeout: the client has waited long enough.
        return [*waits, simple_directive(f"{module}_next_upstream", "error")]
    if action.unlimited:
        return [
            simple_directive(f"{module}_{kind}_timeout", UNLIMITED) for kind in ("send", "read")
        ]
    return traffic_settings.waits(module, default)
