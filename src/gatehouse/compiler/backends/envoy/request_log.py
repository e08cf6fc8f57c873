"""Access log of requests: one JSON object per request, on the standard output of Envoy.

The names of the fields and reasons are the same as of NGINX. Metadata of routes and clusters names
the route and the backend. A filter records the path and host as the client sent them.
"""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.header_to_metadata.v3 import header_to_metadata_pb2

from gatehouse.compiler.backends.envoy import log_entries, quoting
from gatehouse.compiler.backends.envoy.log_entries import ListenerLog
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.ir.access_log import AccessLog, LocalReason, Style, rule_text
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.backend_failures import BACKEND_FAILURES, RESET, BackendFailure

_Config = header_to_metadata_pb2.Config

FILTER = "gh.request_log"

_METADATA = log_entries.METADATA
_REASON = "reason"

_RECORDED = {
    "path": (":path", r"^([^?]*).*$"),
    "host": (":authority", r"^(.*)$"),
    "trace_id": ("traceparent", r"^(?:[0-9a-f]{2}-([0-9a-f]{32})-.*|.*)$"),
}
"""Recorded metadata: header, and the pattern whose group is recorded."""

_QUOTES = r'["\\\x00-\x1f\x7f]'
_UNQUOTED = {
    "path": (":path", rf"\?.*$|{_QUOTES}"),
    "host": (":authority", _QUOTES),
    "user_agent": ("user-agent", _QUOTES),
    "request_id": ("x-request-id", _QUOTES),
}
"""Recorded metadata for lines of text, which do not escape it."""

_DETAILS = "response.code_details"


def _condition(failure: BackendFailure) -> str:
    """Return the condition in CEL."""
    start = (f"{_DETAILS}.startsWith('{RESET}')",) if failure.reset else ()
    return " && ".join((*start, *(f"{_DETAILS}.contains('{word}')" for word in failure.words)))


_REASONS = (
    (f"{_DETAILS} == 'via_upstream'", "''"),
    (
        f"{_DETAILS} == 'direct_response'",
        log_entries.metadata_value("xds.route_metadata", _REASON, ""),
    ),
    (f"{_DETAILS} == 'no_healthy_upstream'", f"'{LocalReason.NO_ENDPOINT}'"),
    (f"{_DETAILS} == 'route_not_found'", f"'{LocalReason.NO_ROUTE}'"),
    (f"{_DETAILS} == 'cluster_not_found'", f"'{LocalReason.INVALID_ROUTE}'"),
    *((_condition(failure), f"'{failure.reason}'") for failure in BACKEND_FAILURES),
    (f"{_DETAILS}.contains('rate_limited')", f"'{LocalReason.RATE_LIMIT}'"),
    (
        f"{_DETAILS}.startsWith('ext_authz') || {_DETAILS}.startsWith('jwt_authn') || "
        f"{_DETAILS}.startsWith('rbac') || {_DETAILS}.contains('basic_auth') || "
        f"{_DETAILS}.contains('api_key')",
        f"'{LocalReason.AUTHENTICATION}'",
    ),
    (f"{_DETAILS} == 'request_payload_too_large'", f"'{LocalReason.BODY_TOO_LARGE}'"),
    (
        f"{_DETAILS} == 'downstream_remote_disconnect' || {_DETAILS} == 'http2.remote_reset'",
        f"'{LocalReason.CLIENT_CLOSED}'",
    ),
    ("response.code == 400 || response.code == 431", f"'{LocalReason.BAD_REQUEST}'"),
)
"""Conditions in CEL and what they mean. The first that holds counts."""

_FIELDS = log_entries.OF_REQUESTS | {
    "host": f"%DYNAMIC_METADATA({_METADATA}:host)%",
    "path": f"%DYNAMIC_METADATA({_METADATA}:path)%",
    "upstream_ms": "%COMMON_DURATION(US_TX_BEG:US_RX_END:ms)%",
    "route": log_entries.ROUTE_OF_REQUEST,
    "backend": log_entries.BACKEND_OF_CLUSTER,
    "request_id": "%REQ(X-REQUEST-ID)%",
    "trace_id": f"%DYNAMIC_METADATA({_METADATA}:trace_id)%",
}


def request_log(
    listener: ListenerLog, settings: AccessLog, *, traced: bool = False
) -> accesslog_pb2.AccessLog:
    """Return the log of requests. ``traced``: Envoy begins traces, with IDs of its own."""
    reason = log_entries.first_reason(_REASONS, LocalReason.REJECTED)
    own = {
        "listener": quoting.escape_percent(listener.name),
        "reason": log_entries.expression(reason),
    }
    if listener.style == "text":
        own |= {name: f"%DYNAMIC_METADATA({_METADATA}:{name})%" for name in _UNQUOTED}
    if traced:
        own["trace_id"] = "%TRACE_ID%"
    proto = log_entries.entry_log(_FIELDS | own, listener.style)
    filters = list(_filters(settings))
    if len(filters) > 1:
        proto.filter.and_filter.filters.extend(filters)
    elif filters:
        proto.filter.CopyFrom(filters[0])
    return proto


def unsupported_access_log(edge: DataPlaneSettings) -> list[UnsupportedSetting]:
    """Return the settings of the log that Envoy does not support."""
    if edge.access_log is None or not edge.access_log.nginx.text:
        return []
    why = "formats with NGINX variables are not supported by Envoy"
    return [UnsupportedSetting(edge.source("log").field("format"), why)]


def _filters(settings: AccessLog) -> Iterator[accesslog_pb2.AccessLogFilter]:
    """Yield the filters that all logged requests pass."""
    if settings.status_classes:
        ranges = [_status_class(number) for number in settings.status_classes]
        # Both need two members.
        ranges *= 2 if len(ranges) == 1 else 1
        proto = accesslog_pb2.AccessLogFilter()
        proto.or_filter.filters.extend(ranges)
        yield proto
    if settings.percent < 100:
        proto = accesslog_pb2.AccessLogFilter()
        proto.runtime_filter.runtime_key = "gatehouse.access_log_sampling"
        proto.runtime_filter.percent_sampled.numerator = settings.percent
        proto.runtime_filter.use_independent_randomness = True
        yield proto


def _status_class(number: int) -> accesslog_pb2.AccessLogFilter:
    comparison = accesslog_pb2.ComparisonFilter
    proto = accesslog_pb2.AccessLogFilter()
    for operator, code in ((comparison.GE, 100 * number), (comparison.LE, 100 * number + 99)):
        limit = proto.and_filter.filters.add().status_code_filter.comparison
        limit.op = operator
        limit.value.default_value = code
        limit.value.runtime_key = "gatehouse.access_log"
    return proto


def recording(style: Style) -> header_to_metadata_pb2.Config:
    """Return the filter that records what entries show of a request."""
    proto = _Config()
    recorded = _RECORDED | (_UNQUOTED if style == "text" else {})
    for key, (header, pattern) in recorded.items():
        present = proto.request_rules.add(header=header).on_header_present
        present.metadata_namespace, present.key = _METADATA, key
        present.regex_value_rewrite.pattern.regex = pattern
        # A pattern without group matches what is left out.
        present.regex_value_rewrite.substitution = r"\1" if "(" in pattern else ""
    return proto


def add_reason(metadata: base_pb2.Metadata, reason: LocalReason) -> None:
    """Add to the metadata of a route that answers itself why it does."""
    metadata.filter_metadata[_METADATA].update({_REASON: str(reason)})


def route_log(_context: EnvoyRouteContext, route: Route) -> EnvoyPiece:
    """Return the name of a route in entries, as metadata."""
    fields = components.Route()
    fields.metadata.filter_metadata[_METADATA].update({"route": rule_text(route.name)})
    return EnvoyPiece(fields=fields)
