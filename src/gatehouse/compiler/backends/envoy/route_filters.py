"""What stands before a route's action: limits of bodies and rates, authentication, sessions.

Two filters in every chain run whatever filters a route brings itself (Envoy's ``composite``), so
that no listener changes with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.common.matcher.action.v3 import skip_action_pb2
from envoy.extensions.filters.http.buffer.v3 import buffer_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
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
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.backends.envoy.route_context import Context
from gatehouse.compiler.backends.envoy.unsupported import left_out
from gatehouse.compiler.ir import http as ir

FILTER = "gh.guard"
BODY = "gh.body"

BUFFERED = 16 << 20
"""Bytes; a body of unstated length is held back until it is known not to be longer than allowed,
if no more than this is."""

_LONGEST = 2**63 - 1
_BUFFER = "envoy.filters.http.buffer"


def idle() -> Any:
    """Give a filter that does nothing until a route says what."""
    composite = extension_pb2.TypedExtensionConfig(
        name="composite", typed_config=packed(composite_pb2.Composite())
    )
    return extension_matcher_pb2.ExtensionWithMatcher(
        extension_config=composite, xds_matcher=matcher_pb2.Matcher(on_no_match=_skip())
    )


def refusals(route: ir.Route, match: Any) -> list[Any]:
    """Give the routes before a route that refuse what it must not get."""
    size = route.settings.client.body_size
    if not size:
        return []
    made = components.Route(name=route.name)
    made.match.CopyFrom(match)
    longer = made.match.headers.add(name="content-length")
    longer.range_match.start, longer.range_match.end = size + 1, _LONGEST
    made.direct_response.status = 413
    return [made]


def apply(made: Any, context: Context, route: ir.Route) -> None:
    """Write what stands before a route. Raises InvalidValueError."""
    if route.snippets:
        named = ", ".join(dict.fromkeys(snippet.name for snippet in route.snippets))
        raise InvalidValueError(f"{named}: snippets are in NGINX's language")
    found = [*rate_limits.limits(route.settings.rates), *authentication.guard(context, route)]
    if found:
        own = matcher_pb2.Matcher(on_no_match=_execute(found))
        made.typed_per_filter_config[FILTER].CopyFrom(_own(own))
    challenges.apply(made, route.authentication)
    if told := authentication.claims_by_header(route):
        made.typed_per_filter_config[claim_headers.FILTER].CopyFrom(
            claim_headers.per_route_config(told)
        )
    size = route.settings.client.body_size
    if size and size <= BUFFERED:
        made.typed_per_filter_config[BODY].CopyFrom(_own(_unstated(size)))
    action = route.action
    if isinstance(action, ir.Forward) and action.persistence is not None:
        config = session_persistence.guard(action.persistence)
        made.typed_per_filter_config[session_persistence.FILTER].CopyFrom(config)


def _own(matcher: Any) -> Any:
    return packed(extension_matcher_pb2.ExtensionWithMatcherPerRoute(xds_matcher=matcher))


def _execute(filters: Sequence[Any]) -> Any:
    """Run filters one after the other."""
    action = composite_pb2.ExecuteFilterAction()
    action.filter_chain.typed_config.extend(filters)
    return _action(action)


def _skip() -> Any:
    return _action(skip_action_pb2.SkipFilter())


def _action(message: Any) -> Any:
    made = xds_extension_pb2.TypedExtensionConfig(name="action", typed_config=packed(message))
    return matcher_pb2.Matcher.OnMatch(action=made)


def _unstated(size: int) -> Any:
    """Hold back bodies whose length is not stated, but for streams in both directions."""
    buffer = extension_pb2.TypedExtensionConfig(
        name=_BUFFER, typed_config=packed(buffer_pb2.Buffer(max_request_bytes=number(size)))
    )
    made = matcher_pb2.Matcher(on_no_match=_execute([buffer]))
    calls = ("content-type", "application/grpc")
    for name, prefix in (("content-length", ""), ("upgrade", ""), calls):
        asked = made.matcher_list.matchers.add(on_match=_skip()).predicate.single_predicate
        header = http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name)
        asked.input.name, asked.value_match.safe_regex.regex = name, f"(?s){prefix}.*"
        asked.input.typed_config.CopyFrom(packed(header))
        asked.value_match.safe_regex.google_re2.SetInParent()
    return made


def unsupported(context: Context, route: ir.Route) -> list[str]:
    """Say what of a route's settings Envoy leaves out."""
    client, proxy = route.settings.client, route.settings.proxy
    of_client = {
        "body.bufferSize": client.body_buffer,
        "body.timeout": client.body_timeout,
        "keepAlive.requests": client.requests,
        "keepAlive.time": client.lifetime,
        "keepAlive.timeout": client.idle,
        "keepAlive.minTimeout": client.keepalive_min_timeout,
    }
    of_proxy = {
        "buffering.disable": proxy.buffering,
        "buffering.bufferSize": proxy.buffer_size,
        "buffering.buffers": proxy.buffers,
        "buffering.busyBuffersSize": proxy.busy_buffers_size,
        "timeout.connect": proxy.connect,
    }
    why = "Envoy has no such setting for a route"
    found = [
        left_out(kind, policies, ", ".join(fields), why)
        for kind, policies, given in (
            ("ClientSettingsPolicy", client.policies, of_client),
            ("ProxySettingsPolicy", proxy.policies, of_proxy),
        )
        if (fields := [name for name, value in given.items() if value is not None])
    ]
    if client.body_size and client.body_size > BUFFERED:
        why = "Envoy limits only bodies whose length is stated"
        found.append(left_out("ClientSettingsPolicy", client.policies, "body.maxSize", why))
    return [
        *found,
        *rate_limits.unsupported(route.settings.rates),
        *authentication.unsupported(context, route),
    ]
