"""Features of routes in Envoy, in the order in which they see a request.

Envoy runs the filters of a route for every kind of answer: the router, its last filter, answers
redirects and fixed responses, too.
"""

from __future__ import annotations

from gatehouse.compiler.backends.envoy import (
    authentication,
    body_sizes,
    claim_headers,
    cors,
    external_auth,
    load_balancing,
    proxy_settings,
    rate_limits,
    request_log,
    retries,
    session_persistence,
    traces,
)
from gatehouse.compiler.backends.envoy.route_context import EnvoyFeature, EnvoyRouteContext
from gatehouse.compiler.backends.literal_values import literal_values
from gatehouse.compiler.backends.route_features import Phase
from gatehouse.compiler.backends.sessions import unsupported_session
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting


def _no_piece(_context: EnvoyRouteContext, _route: ir.Route) -> None:
    """Return the piece of a feature that only has findings."""


def _literal_values(_context: EnvoyRouteContext, route: ir.Route) -> list[UnsupportedSetting]:
    return literal_values(route, always_sent="date")


def _unsupported_session(_context: EnvoyRouteContext, route: ir.Route) -> list[UnsupportedSetting]:
    return unsupported_session(route.action)


ENVOY_ROUTE_FEATURES: tuple[EnvoyFeature, ...] = (
    EnvoyFeature("access log", Phase.OBSERVATION, request_log.route_log),
    EnvoyFeature("traces", Phase.OBSERVATION, traces.route_traces, traces.unsupported_traces),
    EnvoyFeature("CORS", Phase.PREFLIGHT, cors.cors_cases),
    # A route must not be served without snippets, which may contain any check.
    EnvoyFeature("snippets", Phase.LIMITS, proxy_settings.reject_snippets),
    EnvoyFeature(
        "settings of NGINX", Phase.LIMITS, _no_piece, proxy_settings.unsupported_nginx_settings
    ),
    # Envoy knows the length of most bodies before any filter runs.
    EnvoyFeature(
        "body size", Phase.LIMITS, body_sizes.body_limit, body_sizes.unsupported_body_limit
    ),
    EnvoyFeature(
        "rate limits", Phase.LIMITS, rate_limits.rate_limit_filters, rate_limits.unsupported_limits
    ),
    EnvoyFeature("external authorization", Phase.AUTHORIZATION, external_auth.check),
    # The server may set the headers that authentication reads.
    EnvoyFeature(
        "headers of the authorization server", Phase.AUTHENTICATION, external_auth.after_check
    ),
    EnvoyFeature(
        "authentication",
        Phase.AUTHENTICATION,
        authentication.authentication_filters,
        authentication.unsupported_users,
    ),
    # Claims are known after the token is verified.
    EnvoyFeature("headers with claims", Phase.REQUEST, claim_headers.route_claims),
    EnvoyFeature("retries", Phase.REQUEST, retries.repeated_requests),
    EnvoyFeature(
        "session persistence",
        Phase.REQUEST,
        session_persistence.session_filter,
        _unsupported_session,
    ),
    # The action writes these, since each backend may have its own.
    EnvoyFeature("changes of headers", Phase.RESPONSE, _no_piece, _literal_values),
    EnvoyFeature(
        "load balancing", Phase.BACKEND, _no_piece, load_balancing.unsupported_upstream_settings
    ),
)
"""All features. An exception of a piece lets the route answer 500."""
