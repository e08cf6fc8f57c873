"""Forwarding to one backend: over HTTP, HTTP/2 or gRPC, with TLS, limits, copies and retries."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.compiler.backends.nginx import (
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
    traffic_settings,
)
from gatehouse.compiler.backends.nginx.backend_protocol import (
    http_version,
    module_of,
    pass_directive,
    tls_directives,
)
from gatehouse.compiler.backends.nginx.directives import Directive, Node, simple
from gatehouse.compiler.backends.nginx.route_context import Body, Context
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import ProxySettings

UNLIMITED = "24h"
"""NGINX has no way to say for ever."""


def forward(
    context: Context,
    route: ir.Route,
    action: ir.Forward,
    backend: ir.Backend | None,
    upstream: str = "",
) -> Body:
    """Give the inside of the location that sends a request to a backend. Raises UnwritableError.

    ``upstream``: to that one, which several backends share.
    """
    shared = cors.shared(route.cors)
    edit = route.response_headers
    if backend is not None:
        edit = headers.joined(edit, backend.response_headers)
    cluster = context.clusters[backend.cluster] if backend and backend.cluster else None
    added = [*headers.added(edit), *shared.added]
    if backend is None or cluster is None or not cluster.endpoints:
        if action.grpc:
            return Body(grpc_status.unavailable())
        status = "500" if cluster is None else "503"
        return Body((*shared.preflight, *added, simple("return", status)), shared.maps)
    own = session_persistence.upstream_name(cluster.name, action.persistence, route.name)
    return _sent(context, route, action, backend, pass_directive(cluster, upstream or own), edit)


def _sent(
    context: Context,
    route: ir.Route,
    action: ir.Forward,
    backend: ir.Backend,
    sent: Directive,
    edit: ir.HeaderEdit,
) -> Body:
    """Give the inside of a location around the directive that sends the request."""
    cluster = context.clusters[backend.cluster]
    module, scope = module_of(cluster), f"{context.scope}/{route.name}/{backend.cluster}"
    shared = cors.shared(route.cors)
    asked = headers.joined(route.request_headers, backend.request_headers)
    session = session_persistence.session(action.persistence, route.name)
    guarded = access_phase.guards(context, route)
    copies = mirrors.mirrors(context, action.mirrors, scope, guarded)
    told = [(name, f'"${{{variable}}}"') for name, variable in guarded.told]
    host, cookie = action.rewrite.hostname, guarded.cookie
    request = headers.request(module, asked, host, scope, told, context.untold, cookie)
    first, inner = _begun(action, (*shared.preflight, *guarded.asking))
    inner += [
        *guarded.directives,
        *rewriting.rewrites(action.rewrite.path, route.match.path),
        *copies.directives,
        *request.directives,
        *headers.hidden(module, edit, shared.hidden),
        *headers.added(edit),
        *shared.added,
        *guarded.added,
        *session.directives,
        *traffic_settings.proxying(module, route.settings.proxy),
        *limits(module, action, route.settings.proxy),
        *http_version(context, cluster),
        *tls_directives(module, cluster),
        *snippets.within(route.snippets, "http.server.location"),
    ]
    body = retries.attempts(context, route, backend, module, action.retry, inner, sent)
    if first:
        body = access_phase.into_named_location(
            names.route(f"{scope}/guarded", route.name), first, body
        )
    body = msgspec.structs.replace(
        body,
        maps=(*shared.maps, *request.maps, *session.maps, *copies.maps, *body.maps),
        fixed=(*copies.locations, *body.fixed),
    )
    return access_phase.merge_guard(guarded, body)


def _begun(action: ir.Forward, first: Sequence[Node]) -> tuple[Sequence[Node], list[Node]]:
    """Give what is done in a location of its own, and what before the rest of a request's.

    Where answers lead to another attempt, a backend's own 401 would be taken for a guard's.
    """
    apart = action.retry is not None and any(_asks(node) for node in first)
    return (first, []) if apart else ((), [*first])


def _asks(node: Node) -> bool:
    return isinstance(node, Directive) and node.name == "auth_request"


def limits(module: str, action: ir.Forward, otherwise: ProxySettings) -> list[Directive]:
    """NGINX limits each wait, not the whole exchange: the tighter of both limits is used.

    ``otherwise``: where the rule itself has no limits.
    """
    given = [seconds for seconds in (action.request_timeout, action.backend_timeout) if seconds]
    if given:
        value = f"{max(1, round(min(given) * 1000))}ms"
        waits = [simple(f"{module}_{kind}_timeout", value) for kind in ("connect", "send", "read")]
        # Another backend would have its own time: the client has waited long enough.
        return [*waits, simple(f"{module}_next_upstream", "error")]
    if action.unlimited:
        return [simple(f"{module}_{kind}_timeout", UNLIMITED) for kind in ("send", "read")]
    return traffic_settings.waits(module, otherwise)


def cluster_names(action: ir.Forward) -> frozenset[str]:
    """Give every cluster that a route names."""
    found = {backend.cluster for backend in action.backends}
    return frozenset(found | {mirror.cluster for mirror in action.mirrors})
