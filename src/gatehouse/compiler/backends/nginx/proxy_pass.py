"""Forwarding to one backend over HTTP, HTTP/2 or gRPC: TLS, timeouts, mirrors and retries."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.compiler.backends.nginx import (
    access_log,
    access_phase,
    cors,
    grpc_status,
    headers,
    mirrors,
    names,
    retries,
    rewriting,
    session_persistence,
    snippets,
    traces,
    traffic_settings,
)
from gatehouse.compiler.backends.nginx.backend_protocol import (
    http_version,
    module_of,
    pass_directive,
    tls_directives,
)
from gatehouse.compiler.backends.nginx.directives import Directive, DirectiveNode, simple_directive
from gatehouse.compiler.backends.nginx.route_context import Body, NginxRouteContext
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.settings import ProxySettings

UNLIMITED = "24h"
"""Stands for an unlimited timeout, which NGINX does not have."""


def forward_directives(
    context: NginxRouteContext,
    route: ir.Route,
    action: ir.Forward,
    backend: ir.Backend,
    upstream: str = "",
) -> Body:
    """Return the content of the location that forwards to a backend. Raises InvalidValueError.

    ``upstream``: name of an upstream that several backends share; empty: that of the cluster.
    """
    shared = cors.shared(route.cors)
    edit = route.response_headers.then(backend.response_headers)
    cluster = context.clusters[backend.cluster]
    if not cluster.endpoints:
        why = access_log.reason_variable(LocalReason.NO_ENDPOINT)
        if action.grpc:
            return Body((why, *grpc_status.unavailable_location()))
        added = [*headers.added(edit), *shared.added, why]
        return Body((*shared.preflight, *added, simple_directive("return", "503")), shared.maps)
    own = session_persistence.session_upstream(cluster.name, action.persistence)
    return _sent(context, route, action, backend, pass_directive(cluster, upstream or own), edit)


def _sent(
    context: NginxRouteContext,
    route: ir.Route,
    action: ir.Forward,
    backend: ir.Backend,
    sent: Directive,
    edit: ir.HeaderEdit,
) -> Body:
    """Return the content of a location around the directive that forwards the request."""
    cluster = context.clusters[backend.cluster]
    module, scope = module_of(cluster), f"{context.scope}/{route.name}/{backend.cluster}"
    shared = cors.shared(route.cors)
    edits = route.request_headers.then(backend.request_headers)
    guard = access_phase.guards(context, route)
    copies = mirrors.mirror_directives(context, action, route.match.path, edits, scope, guard)
    claims = [(name, f'"${{{variable}}}"') for name, variable in guard.claim_headers]
    host, cookie = action.rewrite.hostname, guard.cookie
    request = headers.request_headers(module, edits, host, claims, context.removed_headers, cookie)
    first, inner = _split_checks(action, (*shared.preflight, *guard.auth_directives))
    inner += [
        *traces.span_directives(context.traces, route),
        # Before directives that end the evaluation of ``set``: they return, or rewrite the path.
        *session_persistence.session_directives(action.persistence),
        *request,
        *guard.directives,
        *copies.before,
        *rewriting.rewrites(action.rewrite.path, route.match.path),
        *copies.directives,
        *headers.hidden(module, edit, shared.hidden),
        *headers.added(edit),
        *shared.added,
        *guard.added,
        *traffic_settings.proxying(module, route.settings.proxy.nginx),
        *_limits(module, action, route.settings.proxy),
        *(grpc_status.failure_directives(route) if action.grpc else ()),
        *http_version(context, cluster),
        *tls_directives(module, cluster),
        *snippets.within(route.snippets, "http.server.location"),
    ]
    body = retries.attempts(context, route, backend, module, action, inner, sent)
    if first:
        name = names.route(f"{scope}/guarded", route.name)
        body = access_phase.into_named_location(name, first, body)
    body = access_phase.after_authorization(guard, scope, body, shared.preflight)
    body = msgspec.structs.replace(
        body,
        maps=(*shared.maps, *copies.maps, *body.maps),
        subrequests=copies.locations,
    )
    return access_phase.merge_guard(guard, body)


def _split_checks(
    action: ir.Forward, first: Sequence[DirectiveNode]
) -> tuple[Sequence[DirectiveNode], list[DirectiveNode]]:
    """Split off the checks that need a location of their own.

    If responses lead to a retry, a 401 of a backend would be mistaken for one of a check.
    """
    separate = action.retry is not None and any(_is_auth_request(node) for node in first)
    return (first, []) if separate else ((), [*first])


def _is_auth_request(node: DirectiveNode) -> bool:
    return isinstance(node, Directive) and node.name == "auth_request"


def _limits(module: str, action: ir.Forward, default: ProxySettings) -> list[Directive]:
    """Return timeouts. NGINX limits each wait, not the exchange: the shorter limit is used.

    ``default``: settings of a rule without timeouts.
    """
    timeouts = [seconds for seconds in (action.request_timeout, action.backend_timeout) if seconds]
    if timeouts:
        value = f"{max(1, round(min(timeouts) * 1000))}ms"
        waits = [
            simple_directive(f"{module}_{kind}_timeout", value)
            for kind in ("connect", "send", "read")
        ]
        # A retry would have its own timeout: the client has waited long enough.
        return [*waits, simple_directive(f"{module}_next_upstream", "error")]
    if action.unlimited:
        return [
            simple_directive(f"{module}_{kind}_timeout", UNLIMITED) for kind in ("send", "read")
        ]
    return traffic_settings.waits(module, default)
