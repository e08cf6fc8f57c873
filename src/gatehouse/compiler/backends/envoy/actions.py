"""Actions of a route: forward, redirect, respond."""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy import (
    denial_headers,
    endpoint_pickers,
    headers,
    load_balancing,
    mirrors,
    names,
    quoting,
    request_log,
    retries,
    rewriting,
    session_persistence,
)
from gatehouse.compiler.backends.envoy.protobufs import wrap_number
from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.upgrades import STREAM_IDLE_SECONDS
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason

_Share = components.WeightedCluster.ClusterWeight

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
"""Status for an unknown cluster, by whether requests are gRPC calls."""

_FIRST_SERVER_ERROR = 500

CALLS = 3600.0
"""Idle timeout of gRPC calls in seconds: streaming calls may be silent for long."""


def apply_action(proto: components.Route, context: EnvoyRouteContext, route: ir.Route) -> None:
    """Write the action of a route. Raises InvalidValueError."""
    match route.action:
        case ir.Forward() as action:
            _forward(proto, context, route, action)
        case ir.Redirect() as action:
            _redirect(proto.redirect, route, action, context.hostname)
        case ir.Respond(status, grpc):
            # Envoy answers a gRPC call with the status UNAVAILABLE instead.
            respond(proto, 503 if grpc else status)
            if grpc or status >= _FIRST_SERVER_ERROR:
                request_log.add_reason(proto.metadata, LocalReason.INVALID_ROUTE)
    if not proto.route.weighted_clusters.clusters and not denial_headers.has_filter(route):
        headers.apply_headers(proto, "response", route.response_headers)


def respond(proto: components.Route, status: int) -> None:
    """Respond with a status. Raises InvalidValueError unless it is between 200 and 599."""
    if not 200 <= status <= 599:
        raise InvalidValueError("status must be between 200 and 599")
    proto.direct_response.status = status


def _forward(
    proto: components.Route, context: EnvoyRouteContext, route: ir.Route, action: ir.Forward
) -> None:
    action_proto = proto.route
    _to(proto, route, action)
    path = rewriting.rewrite(action.rewrite.path, route.match.path)
    if path is not None:
        action_proto.regex_rewrite.CopyFrom(path)
    action_proto.request_mirror_policies.extend(
        mirrors.mirror_policies(action.mirrors, context.clusters)
    )
    clusters = [context.clusters[backend.cluster] for backend in action.backends]
    action_proto.hash_policy.extend(load_balancing.hash_policies(clusters))
    calls = all(cluster.protocol == "grpc" for cluster in clusters)
    _limits(action_proto, route, action, calls=calls)


def _to(proto: components.Route, route: ir.Route, action: ir.Forward) -> None:
    """Forward to one cluster, or to several by weight."""
    action_proto = proto.route
    action_proto.cluster_not_found_response_code = _NOT_FOUND[action.grpc]
    only = action.backends[0]
    weighted = len(action.backends) > 1 or action.failing
    if not weighted and not only.request_headers and not only.response_headers:
        action_proto.cluster = only.cluster
        session_persistence.keep_endpoint(proto, only, (only,))
        if only.picker is not None:
            endpoint_pickers.ask_picker(proto, only.picker)
        _sent(proto, action_proto, route, route.request_headers)
        return
    shares = action_proto.weighted_clusters.clusters
    for backend in action.backends:
        share = shares.add(name=backend.cluster, weight=wrap_number(backend.weight))
        # Envoy applies a share's changes before a route's, so that a share has all of them.
        _sent(share, share, route, route.request_headers.then(backend.request_headers))
        response_edit = route.response_headers.then(backend.response_headers)
        headers.apply_headers(share, "response", response_edit)
        session_persistence.keep_endpoint(share, backend, action.backends)
        if backend.picker is not None:
            endpoint_pickers.ask_picker(share, backend.picker)
    if action.failing:
        share = shares.add(name=names.BROKEN, weight=wrap_number(action.failing))
        headers.apply_headers(share, "response", route.response_headers)


def _sent(
    edited: headers.HeaderTarget,
    action_proto: components.RouteAction | _Share,
    route: ir.Route,
    edit: ir.HeaderEdit,
) -> None:
    """Write the changes of a request's headers and Host."""
    assert isinstance(route.action, ir.Forward)
    request = headers.split_request_edit(edit)
    headers.apply_headers(edited, "request", request.edit)
    rewritten = route.action.rewrite.hostname
    hostname = request.hostname if rewritten is None else rewritten
    if hostname is not None:
        action_proto.host_rewrite_literal = quoting.check_text(hostname)


def _limits(
    action_proto: components.RouteAction, route: ir.Route, action: ir.Forward, *, calls: bool
) -> None:
    policy = retries.retry_policy(action.retry, action.backend_timeout)
    timeouts = [action.request_timeout]
    if policy is not None:
        action_proto.retry_policy.CopyFrom(policy)
    else:
        timeouts.append(action.backend_timeout)
    limits = [seconds for seconds in timeouts if seconds]
    # Envoy's default timeout is 15 seconds.
    action_proto.timeout.CopyFrom(quoting.duration_of(min(limits, default=0.0)))
    waits = [
        timeout for timeout in (route.settings.proxy.read, route.settings.proxy.send) if timeout
    ]
    if limits:
        # The timeout ends neither an upgraded connection nor a request that is never complete.
        idle = max(CALLS if calls else STREAM_IDLE_SECONDS, min(limits) + 1)
        action_proto.idle_timeout.CopyFrom(quoting.duration_of(idle))
    elif action.backend_timeout or action.unlimited:
        action_proto.idle_timeout.CopyFrom(quoting.duration_of(0.0))
    elif waits:
        action_proto.idle_timeout.CopyFrom(quoting.duration_of(max(waits)))
    elif calls:
        action_proto.idle_timeout.CopyFrom(quoting.duration_of(CALLS))


def _redirect(
    proto: components.RedirectAction, route: ir.Route, action: ir.Redirect, hostname: str
) -> None:
    proto.response_code = _REDIRECTS[action.status]
    if action.scheme is not None:
        proto.scheme_redirect = action.scheme
    if action.hostname is not None or hostname:
        # Set even if unchanged: otherwise the port of the request would stay too.
        proto.host_redirect = quoting.check_text(action.hostname or hostname)
    if action.port is not None:
        proto.port_redirect = action.port
    match action.path:
        case ir.FullPath(value):
            proto.path_redirect = quoting.path(value)
        case ir.PrefixPath():
            path = rewriting.rewrite(action.path, route.match.path)
            if path is not None:
                proto.regex_rewrite.CopyFrom(path)
