"""What a route does: forward, redirect, respond."""

from __future__ import annotations

from typing import Any

from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy import (
    headers,
    load_balancing,
    mirrors,
    names,
    quoting,
    retries,
    rewriting,
    session_persistence,
)
from gatehouse.compiler.backends.envoy.protobufs import number
from gatehouse.compiler.backends.envoy.route_context import Context
from gatehouse.compiler.ir import http as ir

_REDIRECTS = {
    301: components.RedirectAction.MOVED_PERMANENTLY,
    302: components.RedirectAction.FOUND,
    303: components.RedirectAction.SEE_OTHER,
    307: components.RedirectAction.TEMPORARY_REDIRECT,
    308: components.RedirectAction.PERMANENT_REDIRECT,
}

_NOT_FOUND = {
    False: components.RouteAction.INTERNAL_SERVER_ERROR,
    # Envoy answers a gRPC call with the status UNAVAILABLE instead.
    True: components.RouteAction.SERVICE_UNAVAILABLE,
}
"""By whether requests are gRPC calls."""

CALLS = 3600.0
"""Seconds: streams of calls may be silent for long."""


def serve(made: Any, context: Context, route: ir.Route, hostname: str) -> None:
    """Write what a route does. Raises InvalidValueError.

    ``hostname``: the only one that it is asked for by, if there is but one.
    """
    match route.action:
        case ir.Forward():
            _forward(made, context, route, route.action)
        case ir.Redirect():
            _redirect(made.redirect, route, route.action, hostname)
        case ir.Respond(status):
            respond(made, status)
    if not made.route.weighted_clusters.clusters:
        headers.apply(made, "response", route.response_headers)


def respond(made: Any, status: int) -> None:
    """Answer with a status."""
    if not 200 <= status <= 599:
        raise quoting.InvalidValueError("a status is not between 200 and 599")
    made.direct_response.status = status


def _forward(made: Any, context: Context, route: ir.Route, action: ir.Forward) -> None:
    wanted = [backend for backend in action.backends if backend.weight > 0]
    if not any(backend.cluster in context.clusters for backend in wanted):
        made.direct_response.status = 503 if action.grpc else 500
        return
    sent = made.route
    _to(made, context, route, wanted)
    path = rewriting.rewrite(action.rewrite.path, route.match.path)
    if path is not None:
        sent.regex_rewrite.CopyFrom(path)
    sent.request_mirror_policies.extend(mirrors.mirrors(action.mirrors, context.clusters))
    clusters = [context.clusters[each.cluster] for each in wanted if each.cluster]
    sent.hash_policy.extend(load_balancing.hash_policies(clusters))
    if action.persistence is not None and len(wanted) > 1:
        sent.weighted_clusters.use_hash_policy.value = True
        sent.hash_policy.append(session_persistence.share(action.persistence))
    calls = all(cluster.protocol == "grpc" for cluster in clusters)
    _limits(sent, route, action, calls=calls)


def _to(made: Any, context: Context, route: ir.Route, wanted: list[ir.Backend]) -> None:
    """Send to one cluster, or to several by weight; a share without one is refused."""
    assert isinstance(route.action, ir.Forward)
    sent = made.route
    sent.cluster_not_found_response_code = _NOT_FOUND[route.action.grpc]
    only = wanted[0]
    if len(wanted) == 1 and not only.request_headers and not only.response_headers:
        sent.cluster = only.cluster
        _sent(made, sent, route, route.request_headers)
        return
    for backend in wanted:
        known = backend.cluster in context.clusters
        share = sent.weighted_clusters.clusters.add(
            name=backend.cluster if known else names.BROKEN, weight=number(backend.weight)
        )
        # Envoy makes a share's changes before a route's, so that a share makes all of them.
        _sent(share, share, route, headers.joined(route.request_headers, backend.request_headers))
        answered = headers.joined(route.response_headers, backend.response_headers)
        headers.apply(share, "response", answered)


def _sent(edited: Any, sent: Any, route: ir.Route, edit: ir.HeaderEdit) -> None:
    """Write the changes of a request, its host's among them."""
    assert isinstance(route.action, ir.Forward)
    request = headers.request(edit)
    headers.apply(edited, "request", request.edit)
    rewritten = route.action.rewrite.hostname
    hostname = request.hostname if rewritten is None else rewritten
    if hostname is not None:
        sent.host_rewrite_literal = rewriting.hostname(hostname)


def _limits(sent: Any, route: ir.Route, action: ir.Forward, *, calls: bool) -> None:
    policy = retries.policy(action.retry, action.backend_timeout)
    given = [action.request_timeout]
    if policy is not None:
        sent.retry_policy.CopyFrom(policy)
    else:
        given.append(action.backend_timeout)
    limits = [seconds for seconds in given if seconds]
    # Without a word Envoy would wait 15 seconds.
    sent.timeout.CopyFrom(quoting.seconds(min(limits, default=0.0)))
    waits = [each for each in (route.settings.proxy.read, route.settings.proxy.send) if each]
    if limits or action.backend_timeout or action.unlimited:
        sent.idle_timeout.CopyFrom(quoting.seconds(0.0))
    elif waits:
        sent.idle_timeout.CopyFrom(quoting.seconds(max(waits)))
    elif calls:
        sent.idle_timeout.CopyFrom(quoting.seconds(CALLS))


def _redirect(made: Any, route: ir.Route, action: ir.Redirect, hostname: str) -> None:
    made.response_code = _REDIRECTS[action.status]
    if action.scheme is not None:
        made.scheme_redirect = action.scheme
    if action.hostname is not None or hostname:
        # Said even where it stays the same: else the request's own port would stay, too.
        made.host_redirect = rewriting.hostname(action.hostname or hostname)
    if action.port is not None:
        made.port_redirect = action.port
    match action.path:
        case ir.FullPath(value):
            made.path_redirect = quoting.path(value)
        case ir.PrefixPath():
            path = rewriting.rewrite(action.path, route.match.path)
            if path is not None:
                made.regex_rewrite.CopyFrom(path)
