"""Forwarding to one backend: over HTTP, HTTP/2 or gRPC, with TLS, limits, copies and retries."""

from __future__ import annotations

import msgspec

from gatehouse.backends.nginx import (
    cors,
    guards,
    headers,
    mirrors,
    retries,
    rewriting,
    sessions,
    settings,
    snippets,
)
from gatehouse.backends.nginx.served import Body, Context
from gatehouse.backends.nginx.speaking import module_of, protocol, tls, to
from gatehouse.backends.nginx.tree import Directive, Node, simple
from gatehouse.ir import http as ir
from gatehouse.ir.settings import ProxySettings

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
        status = "500" if cluster is None else "503"
        return Body((*shared.preflight, *added, simple("return", status)), shared.maps)
    own = sessions.upstream_name(cluster.name, action.persistence, route.name)
    return _sent(context, route, action, backend, to(cluster, upstream or own), edit)


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
    session = sessions.session(action.persistence, route.name)
    copies = mirrors.mirrors(context, action.mirrors, scope)
    guarded = guards.guards(context, route)
    told = [(name, f'"${{{variable}}}"') for name, variable in guarded.told]
    request = headers.request(module, asked, action.rewrite.hostname, scope, told, context.untold)
    inner: list[Node] = [
        *shared.preflight,
        *guarded.directives,
        *rewriting.rewrites(action.rewrite.path, route.match.path),
        *copies.directives,
        *request.directives,
        *headers.hidden(module, edit, shared.hidden),
        *headers.added(edit),
        *shared.added,
        *session.directives,
        *settings.proxying(module, route.settings.proxy),
        *limits(module, action, route.settings.proxy),
        *protocol(context, cluster),
        *tls(module, cluster),
        *snippets.within(route.snippets, "http.server.location"),
    ]
    body = retries.attempts(context, route, backend, module, action.retry, inner, sent)
    return msgspec.structs.replace(
        body,
        maps=(
            *(*guarded.maps, *shared.maps, *request.maps),
            *(*session.maps, *copies.maps, *body.maps),
        ),
        fixed=(*copies.locations, *body.fixed),
    )


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
    return settings.waits(module, otherwise)


def cluster_names(action: ir.Forward) -> frozenset[str]:
    """Give every cluster that a route names."""
    found = {backend.cluster for backend in action.backends}
    return frozenset(found | {mirror.cluster for mirror in action.mirrors})
