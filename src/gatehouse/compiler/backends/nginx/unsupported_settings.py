"""Settings of a route that NGINX does not support. The route is served without them."""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.compiler.backends.literal_values import literal_values
from gatehouse.compiler.backends.nginx import headers, retries, traces, traffic_settings, upstreams
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext
from gatehouse.compiler.backends.sessions import unsupported_session
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting


def unsupported_settings(context: NginxRouteContext, route: ir.Route) -> list[UnsupportedSetting]:
    """Return the unsupported settings of a route and of its clusters."""
    known, capabilities = context.clusters, context.capabilities
    clusters = [known[name] for name in sorted(route.clusters) if name in known]
    return [
        *traffic_settings.unsupported_traffic(route.settings, capabilities),
        *unsupported_session(route.action),
        *_of_action(route.action),
        *headers.unsupported_response_headers(route.response_headers),
        *literal_values(route),
        *traces.unsupported_tracing(route.settings.tracing, capabilities),
        *(
            why
            for cluster in clusters
            for why in upstreams.unsupported_upstream(cluster.settings, capabilities)
        ),
    ]


def _of_action(action: ir.Action) -> Iterator[UnsupportedSetting]:
    if isinstance(action, ir.Forward):
        if action.retry is not None:
            yield from retries.unsupported_retry(action.retry)
        for backend in action.backends:
            yield from headers.unsupported_response_headers(backend.response_headers)
