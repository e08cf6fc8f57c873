"""Filters before the action of a route: body size, rate limits, authentication, sessions.

Three filters in every chain run the filters that a route configures (Envoy's ``composite``), so
that listeners do not depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.buffer.v3 import buffer_pb2
from xds.type.matcher.v3 import matcher_pb2

from gatehouse.compiler.backends.envoy import (
    authentication,
    challenges,
    claim_headers,
    endpoint_pickers,
    external_auth,
    filter_matchers,
    rate_limits,
    request_log,
    retries,
    session_persistence,
)
from gatehouse.compiler.backends.envoy.protobufs import packed, wrap_number
from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.literal_values import literal_values
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.proxy_settings import NginxClientSettings, NginxResponseSettings
from gatehouse.compiler.ir.settings import ClientSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

AUTHORIZATION_FILTER = "gh.authorization"
GUARD_FILTER = "gh.guard"

_MAX_BUFFER_BYTES = (1 << 32) - 1
"""Maximum size in bytes of a body that Envoy's buffer filter can hold."""

_MAX_LENGTH_BYTES = 2**63 - 1
_BUFFER = "envoy.filters.http.buffer"


def rejections(route: ir.Route, match: components.RouteMatch) -> list[components.Route]:
    """Return the routes before a route that reject requests with a body that is too large."""
    size = route.settings.client.body_size
    if not size:
        return []
    proto = components.Route(name=route.name)
    proto.match.CopyFrom(match)
    longer = proto.match.headers.add(name="content-length")
    longer.range_match.start, longer.range_match.end = size + 1, _MAX_LENGTH_BYTES
    proto.direct_response.status = 413
    request_log.add_reason(proto.metadata, LocalReason.BODY_TOO_LARGE)
    return [proto]


def apply_filters(proto: components.Route, context: EnvoyRouteContext, route: ir.Route) -> None:
    """Write the filters of a route. Raises InvalidValueError."""
    if route.snippets:
        objects = ", ".join(dict.fromkeys(str(snippet.origin) for snippet in route.snippets))
        raise InvalidValueError(f"{objects}: snippets in NGINX syntax are not supported by Envoy")
    filters = rate_limits.rate_limit_filters(route.settings.rates)
    checks = authentication.authentication_filters(context, route)
    retry = route.action.retry if isinstance(route.action, ir.Forward) else None
    if route.external_auth is None:
        if retry is not None:
            _run(proto, AUTHORIZATION_FILTER, (), retry)
        _run(proto, GUARD_FILTER, [*filters, *checks])
    else:
        # After a filter that waits for a response, Envoy skips the others of its list.
        _run(proto, AUTHORIZATION_FILTER, [*filters, external_auth.check(route.external_auth)])
        _run(proto, GUARD_FILTER, [*external_auth.after_check(route.external_auth), *checks], retry)
    challenges.apply_challenge(proto, route.authentication)
    if claims := authentication.claims_by_header(route):
        proto.typed_per_filter_config[claim_headers.CLAIMS_FILTER].CopyFrom(
            claim_headers.per_route_config(claims)
        )
    action, size = route.action, route.settings.client.body_size
    if (
        size
        and endpoint_pickers.BODY not in proto.typed_per_filter_config
        and _is_enforced(route.settings.client)
    ):
        proto.typed_per_filter_config[endpoint_pickers.BODY].CopyFrom(
            filter_matchers.per_route(_buffer_unknown_length(size))
        )
    if isinstance(action, ir.Forward) and action.persistence is not None:
        config = session_persistence.session_filter(action.persistence)
        proto.typed_per_filter_config[session_persistence.STATEFUL_SESSION_FILTER].CopyFrom(config)


def _run(
    proto: components.Route,
    place: str,
    filters: Sequence[extension_pb2.TypedExtensionConfig],
    retry: ir.Retry | None = None,
) -> None:
    """Run filters of a route in the place of a filter of every chain.

    ``retry``: the retries of the route, in the place that has no filter that counts requests.
    """
    if retry is not None:
        first = retries.repeating()
        own = filter_matchers.for_methods(ir.IDEMPOTENT_METHODS, first, filters)
    elif filters:
        own = matcher_pb2.Matcher(on_no_match=filter_matchers.run_filters(filters))
    else:
        return
    proto.typed_per_filter_config[place].CopyFrom(filter_matchers.per_route(own))


def _is_enforced(client: ClientSettings) -> bool:
    """Return whether bodies of unknown length are held until they are known to be short enough."""
    return (client.body_size or 0) <= min(client.envoy.whole_body or 0, _MAX_BUFFER_BYTES)


def _buffer_unknown_length(size: int) -> matcher_pb2.Matcher:
    """Buffer bodies of unknown length, except bidirectional streams."""
    buffer = extension_pb2.TypedExtensionConfig(
        name=_BUFFER, typed_config=packed(buffer_pb2.Buffer(max_request_bytes=wrap_number(size)))
    )
    proto = matcher_pb2.Matcher(on_no_match=filter_matchers.run_filters([buffer]))
    calls = ("content-type", "application/grpc")
    for name, prefix in (("content-length", ""), ("upgrade", ""), calls):
        predicate = proto.matcher_list.matchers.add(
            on_match=filter_matchers.skip_filter()
        ).predicate.single_predicate
        filter_matchers.match_header(predicate, name, f"(?s){prefix}.*")
    return proto


def unsupported_filters(context: EnvoyRouteContext, route: ir.Route) -> list[UnsupportedSetting]:
    """Return the settings of a route that Envoy does not support."""
    client, proxy = route.settings.client, route.settings.proxy
    why = "not supported by Envoy for a route"
    findings: list[UnsupportedSetting] = []
    if client.nginx != _NO_CLIENT_SETTINGS or proxy.nginx != _NO_RESPONSE_SETTINGS:
        findings = [
            UnsupportedSetting(settings.source(f"nginx.{field}"), why)
            for settings, fields in ((client, _CLIENT_FIELDS), (proxy, _PROXY_FIELDS))
            for field in fields
            if getattr(settings.nginx, field) is not None
        ]
    if client.body_size and (endpoint_pickers.has_picker(route.action) or not _is_enforced(client)):
        why = "Envoy limits only bodies with Content-Length"
        findings.append(UnsupportedSetting(client.source("body_size"), why))
    return [
        *findings,
        *rate_limits.unsupported_limits(route.settings.rates),
        *authentication.unsupported_users(context, route),
        *literal_values(route, always_sent="date"),
    ]


_NO_CLIENT_SETTINGS, _NO_RESPONSE_SETTINGS = NginxClientSettings(), NginxResponseSettings()
_CLIENT_FIELDS = (
    "body_buffer",
    "body_timeout",
    "requests",
    "lifetime",
    "idle",
    "keepalive_header_timeout",
    "keepalive_min_timeout",
)
_PROXY_FIELDS = ("buffering", "buffer_size", "buffers", "busy_buffers_size", "connect")
"""Settings of a route that Envoy does not support."""
