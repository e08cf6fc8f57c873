"""Maximum size of request bodies: by their Content-Length, and of bodies that Envoy holds."""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.buffer.v3 import buffer_pb2
from xds.type.matcher.v3 import matcher_pb2

from gatehouse.compiler.backends.envoy import endpoint_pickers, extensions, filter_matchers
from gatehouse.compiler.backends.envoy.protobufs import wrap_number
from gatehouse.compiler.backends.envoy.route_context import (
    EarlyRejection,
    EnvoyPiece,
    EnvoyRouteContext,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.settings import ClientSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

_MAX_BUFFER_BYTES = (1 << 32) - 1
"""Maximum size in bytes of a body that Envoy's buffer filter can hold."""

_MAX_LENGTH_BYTES = 2**63 - 1
_BUFFER = "envoy.filters.http.buffer"


def limit_body(_context: EnvoyRouteContext, route: ir.Route) -> EnvoyPiece | None:
    """Return the limit of a route. The filter of an endpoint picker takes the place of a buffer."""
    size = route.settings.client.body_size
    if not size:
        return None
    longer = components.HeaderMatcher(name="content-length")
    longer.range_match.start, longer.range_match.end = size + 1, _MAX_LENGTH_BYTES
    fields = components.Route()
    if _is_enforced(route.settings.client):
        fields.typed_per_filter_config[endpoint_pickers.BODY].CopyFrom(
            filter_matchers.per_route(_buffer_unknown_length(size))
        )
    rejection = EarlyRejection(longer, 413, LocalReason.BODY_TOO_LARGE)
    return EnvoyPiece(fields=fields, rejections=(rejection,))


def unsupported_body_limit(
    _context: EnvoyRouteContext, route: ir.Route
) -> list[UnsupportedSetting]:
    """Return the limit of a route that Envoy cannot enforce for all bodies."""
    client = route.settings.client
    if not client.body_size:
        return []
    if _is_enforced(client) and not endpoint_pickers.has_picker(route.action):
        return []
    why = "Envoy limits only bodies with Content-Length"
    return [UnsupportedSetting(client.source("body_size"), why)]


def _is_enforced(client: ClientSettings) -> bool:
    """Return whether bodies of unknown length are held until they are known to be short enough."""
    return (client.body_size or 0) <= min(client.envoy.whole_body or 0, _MAX_BUFFER_BYTES)


def _buffer_unknown_length(size: int) -> matcher_pb2.Matcher:
    """Buffer bodies of unknown length, except bidirectional streams."""
    buffer = extensions.extension(_BUFFER, buffer_pb2.Buffer(max_request_bytes=wrap_number(size)))
    proto = matcher_pb2.Matcher(on_no_match=filter_matchers.run_filters([buffer]))
    calls = ("content-type", "application/grpc")
    for name, prefix in (("content-length", ""), ("upgrade", ""), calls):
        predicate = proto.matcher_list.matchers.add(
            on_match=filter_matchers.skip_filter()
        ).predicate.single_predicate
        filter_matchers.match_header(predicate, name, f"(?s){prefix}.*")
    return proto
