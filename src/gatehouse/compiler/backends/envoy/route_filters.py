"""Filters before the action of a route: body size, rate limits, authentication, sessions.

Two filters in every chain run the filters that a route configures (Envoy's ``composite``), so that
listeners do not depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.common.matcher.action.v3 import skip_action_pb2
from envoy.extensions.filters.http.buffer.v3 import buffer_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf import any_pb2
from google.protobuf.message import Message
from xds.core.v3 import extension_pb2 as xds_extension_pb2
from xds.type.matcher.v3 import matcher_pb2

from gatehouse.compiler.backends.envoy import (
    authentication,
    challenges,
    claim_headers,
    rate_limits,
    session_persistence,
)
from gatehouse.compiler.backends.envoy.protobufs import number, packed
from gatehouse.compiler.backends.envoy.route_context import Context
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

FILTER = "gh.guard"
BODY = "gh.body"

BUFFERED = 16 << 20
"""Bytes. A body of unknown length up to this size is buffered until its length is known to be
within the limit."""

_MAX_LENGTH = 2**63 - 1
_BUFFER = "envoy.filters.http.buffer"


def idle() -> extension_matcher_pb2.ExtensionWithMatcher:
    """Return a filter that does nothing until a route configures it."""
    composite = extension_pb2.TypedExtensionConfig(
        name="composite", typed_config=packed(composite_pb2.Composite())
    )
    return extension_matcher_pb2.ExtensionWithMatcher(
        extension_config=composite, xds_matcher=matcher_pb2.Matcher(on_no_match=_skip())
    )


def rejections(route: ir.Route, match: components.RouteMatch) -> list[components.Route]:
    """Return the routes before a route that reject requests with a body that is too large."""
    size = route.settings.client.body_size
    if not size:
        return []
    proto = components.Route(name=route.name)
    proto.match.CopyFrom(match)
    longer = proto.match.headers.add(name="content-length")
    longer.range_match.start, longer.range_match.end = size + 1, _MAX_LENGTH
    proto.direct_response.status = 413
    return [proto]


def apply(proto: components.Route, context: Context, route: ir.Route) -> None:
    """Write the filters of a route. Raises InvalidValueError."""
    if route.snippets:
        objects = ", ".join(dict.fromkeys(str(snippet.origin) for snippet in route.snippets))
        raise InvalidValueError(f"{objects}: snippets in NGINX syntax are not supported by Envoy")
    filters = [*rate_limits.limits(route.settings.rates), *authentication.guard(context, route)]
    if filters:
        own = matcher_pb2.Matcher(on_no_match=_execute(filters))
        proto.typed_per_filter_config[FILTER].CopyFrom(_own(own))
    challenges.apply(proto, route.authentication)
    if claims := authentication.claims_by_header(route):
        proto.typed_per_filter_config[claim_headers.FILTER].CopyFrom(
            claim_headers.per_route_config(claims)
        )
    size = route.settings.client.body_size
    if size and size <= BUFFERED:
        proto.typed_per_filter_config[BODY].CopyFrom(_own(_buffer_unknown_length(size)))
    action = route.action
    if isinstance(action, ir.Forward) and action.persistence is not None:
        config = session_persistence.guard(action.persistence)
        proto.typed_per_filter_config[session_persistence.FILTER].CopyFrom(config)


def _own(matcher: matcher_pb2.Matcher) -> any_pb2.Any:
    return packed(extension_matcher_pb2.ExtensionWithMatcherPerRoute(xds_matcher=matcher))


def _execute(filters: Sequence[extension_pb2.TypedExtensionConfig]) -> matcher_pb2.Matcher.OnMatch:
    """Run filters one after the other."""
    action = composite_pb2.ExecuteFilterAction()
    action.filter_chain.typed_config.extend(filters)
    return _action(action)


def _skip() -> matcher_pb2.Matcher.OnMatch:
    return _action(skip_action_pb2.SkipFilter())


def _action(message: Message) -> matcher_pb2.Matcher.OnMatch:
    proto = xds_extension_pb2.TypedExtensionConfig(name="action", typed_config=packed(message))
    return matcher_pb2.Matcher.OnMatch(action=proto)


def _buffer_unknown_length(size: int) -> matcher_pb2.Matcher:
    """Buffer bodies of unknown length, except bidirectional streams."""
    buffer = extension_pb2.TypedExtensionConfig(
        name=_BUFFER, typed_config=packed(buffer_pb2.Buffer(max_request_bytes=number(size)))
    )
    proto = matcher_pb2.Matcher(on_no_match=_execute([buffer]))
    calls = ("content-type", "application/grpc")
    for name, prefix in (("content-length", ""), ("upgrade", ""), calls):
        predicate = proto.matcher_list.matchers.add(on_match=_skip()).predicate.single_predicate
        header = http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name)
        predicate.input.name, predicate.value_match.safe_regex.regex = name, f"(?s){prefix}.*"
        predicate.input.typed_config.CopyFrom(packed(header))
        predicate.value_match.safe_regex.google_re2.SetInParent()
    return proto


def unsupported(context: Context, route: ir.Route) -> list[UnsupportedSetting]:
    """Return the settings of a route that Envoy does not support."""
    client, proxy = route.settings.client, route.settings.proxy
    why = "not supported by Envoy for a route"
    findings = [
        UnsupportedSetting(settings.source(field), why)
        for settings, fields in ((client, _CLIENT_FIELDS), (proxy, _PROXY_FIELDS))
        for field in fields
        if getattr(settings, field) is not None
    ]
    if client.body_size and client.body_size > BUFFERED:
        why = "Envoy limits only bodies with Content-Length"
        findings.append(UnsupportedSetting(client.source("body_size"), why))
    return [
        *findings,
        *rate_limits.unsupported(route.settings.rates),
        *authentication.unsupported(context, route),
    ]


_CLIENT_FIELDS = (
    "body_buffer",
    "body_timeout",
    "requests",
    "lifetime",
    "idle",
    "keepalive_min_timeout",
)
_PROXY_FIELDS = ("buffering", "buffer_size", "buffers", "busy_buffers_size", "connect")
"""Settings of a route that Envoy does not support."""
