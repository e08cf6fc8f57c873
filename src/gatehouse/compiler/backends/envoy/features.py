"""Features of routes in Envoy, in the order in which they see a request.

Envoy runs the filters of a route for every kind of answer: the router, its last filter, answers
redirects and fixed responses, too.
"""

from __future__ import annotations

from gatehouse.compiler.backends.envoy import (
    api_keys,
    authentication,
    body_sizes,
    claim_headers,
    client_addresses,
    compression,
    cors,
    denial_headers,
    external_auth,
    load_balancing,
    proxy_settings,
    rate_limits,
    request_log,
    retries,
    traces,
)
from gatehouse.compiler.backends.envoy.route_context import EnvoyFeature
from gatehouse.compiler.backends.literal_values import literal_values
from gatehouse.compiler.backends.route_features import Phase, RouteFeatures
from gatehouse.compiler.backends.sessions import unsupported_session

ENVOY_ROUTE_FEATURES = RouteFeatures(
    (
        EnvoyFeature("access log", Phase.OBSERVATION, request_log.route_log),
        EnvoyFeature("spans", Phase.OBSERVATION, traces.route_traces, traces.unsupported_traces),
        EnvoyFeature("CORS", Phase.PREFLIGHT, cors.cors_cases),
        # A route must not be served without snippets, which may contain any check.
        EnvoyFeature(
            "settings of NGINX",
            Phase.LIMITS,
            proxy_settings.reject_snippets,
            proxy_settings.unsupported_nginx_settings,
        ),
        # Envoy knows the length of most bodies before any filter runs.
        EnvoyFeature(
            "body limit", Phase.LIMITS, body_sizes.limit_body, body_sizes.unsupported_body_limit
        ),
        EnvoyFeature("client addresses", Phase.LIMITS, client_addresses.addresses_filter),
        EnvoyFeature(
            "rate limits",
            Phase.LIMITS,
            rate_limits.rate_limit_filters,
            rate_limits.unsupported_limits,
        ),
        EnvoyFeature("authorization server", Phase.AUTHORIZATION, external_auth.check),
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
        EnvoyFeature("requests without keys", Phase.REQUEST, api_keys.route_keys),
        EnvoyFeature("retries", Phase.REQUEST, retries.repeated_requests),
        EnvoyFeature(
            "session",
            Phase.REQUEST,
            unsupported=lambda _, route: unsupported_session(route.action),
        ),
        EnvoyFeature("headers of denials", Phase.RESPONSE, denial_headers.denial_headers),
        EnvoyFeature("compression", Phase.RESPONSE, compression.route_compression),
        EnvoyFeature(
            "literal values",
            Phase.RESPONSE,
            unsupported=lambda _, route: literal_values(route, always_sent="date"),
        ),
        EnvoyFeature(
            "clusters", Phase.BACKEND, unsupported=load_balancing.unsupported_upstream_settings
        ),
    )
)
"""All features of routes. If the piece of one raises an exception, the route answers 500."""
