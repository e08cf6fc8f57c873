"""Access log of requests: one line per request on the standard output of NGINX.

Locations set what only they know: route, backend, and the reason of a response by NGINX itself. The
rest is computed when a request is logged, by few maps for all routes: each map costs up to 1 ms
whenever NGINX reads its configuration.
"""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.compiler.backends.failures import served_without
from gatehouse.compiler.backends.fragments import Fragment
from gatehouse.compiler.backends.nginx import log_formats, log_lines, names, quoting
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    map_block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.log_maps import reason_map, time_map
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import AccessLog, LocalReason, Style, objects_text, rule_text
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.unsupported import Unsupported, UnsupportedSetting
from gatehouse.dataplane.file_set import File
from gatehouse.dataplane.origin import gateway_origin

_FORMAT = "gatehouse"

ROUTE_VARIABLE, BACKEND_VARIABLE, REASON_VARIABLE = (
    "$gh_log_route",
    "$gh_log_backend",
    "$gh_log_own_reason",
)
"""Variables that locations set."""

MARK_VARIABLE = "$gh_log_mark"
"""Variable of the mark; empty for most requests (:mod:`gatehouse.dataplane.failed_attempts`)."""

_OUTPUT = ("/dev/stdout", "buffer=64k", "flush=1s")
"""NGINX inherits the standard output. It writes in blocks, which cost a hundredth of the calls."""

_FIELDS = {
    "listener": "{gateway}:$gh_port",
    "client": "$remote_addr",
    "peer": "$realip_remote_addr",
    "host": "$gh_host",
    "sni": "$ssl_server_name",
    "method": "$request_method",
    "path": "$gh_log_path",
    "protocol": "$gh_log_protocol",
    "status": "$gh_log_status",
    "grpc_status": "$gh_log_grpc_status",
    "bytes_received": "$request_length",
    "bytes_sent": "$bytes_sent",
    # An exponent makes milliseconds of seconds.
    "duration_ms": "${request_time}e3",
    "upstream_ms": "$gh_log_upstream_ms",
    "route": ROUTE_VARIABLE,
    "backend": BACKEND_VARIABLE,
    "endpoint": "$gh_log_endpoint",
    "attempts": "$gh_log_attempts",
    "reason": "$gh_log_reason",
    "user_agent": "$http_user_agent",
    "request_id": "$http_x_request_id",
    "trace_id": "$gh_log_trace",
}
"""Fields after ``time``, and their values."""

_TIME_SOURCE = '"$time_iso8601 $msec $request_uri $server_protocol $http_traceparent"'

_HTTP_09 = "009"
"""Status of a response that NGINX forwards as HTTP/0.9."""

_REASON_SOURCE = (
    '"$gh_log_own_reason $status $limit_req_status $upstream_header_time $upstream_bytes_received"'
)

_REASONS = (
    # Most requests: NGINX tries no other pattern.
    (r"^ [1-3]", '""'),
    # A response that is no HTTP, which NGINX does not forward, or forwards as HTTP/0.9.
    (
        r"^(?:connection_failure \d+| 502) \S* (?:.* )?- (?:.* )?[1-9]\d*$",
        LocalReason.BACKEND_PROTOCOL,
    ),
    (rf"^ {_HTTP_09} ", LocalReason.BACKEND_PROTOCOL),
    # NGINX has the variable of a connection that failed, but no header of the response.
    (r"^(?<gh_log_known>[a-z_]+) ", "$gh_log_known"),
    (r"^ \S+ REJECTED", LocalReason.RATE_LIMIT),
    (r"^ 401 \S*  $", LocalReason.AUTHENTICATION),
    (r"^ 403 \S*  $", LocalReason.AUTHENTICATION),
    (r"^ 404 \S*  $", LocalReason.NO_ROUTE),
    (r"^ 413 \S*  $", LocalReason.BODY_TOO_LARGE),
    (r"^ 421 \S*  $", LocalReason.MISDIRECTED),
    (r"^ 49[5-7] \S*  $", LocalReason.CLIENT_CERTIFICATE),
    (r"^ (?:400|414|431|494|505) \S*  $", LocalReason.BAD_REQUEST),
    (r"^ 499 ", LocalReason.CLIENT_CLOSED),
    (r"^ 408 \S*  $", LocalReason.TIMEOUT),
    (r"^ 504 \S* (?:.* )?- [\d, :]+$", LocalReason.TIMEOUT),
    (r"^ 502 \S* (?:.* )?- [\d, :]+$", LocalReason.CONNECTION_FAILURE),
)
"""Patterns for the reason of a location, the status, the result of rate limits, the times of the
response headers and the bytes from endpoints, and the reasons. The first that matches counts."""

_MAX_COUNTED_ATTEMPTS = 8


def log_piece(context: NginxRouteContext, route: ir.Route) -> RoutePiece:
    """Return the directives of a location that name the route and its backends."""
    named = _set(ROUTE_VARIABLE, rule_text(route.name))
    if not context.answering:
        return RoutePiece(named=(named,))
    backends = objects_text(cluster.origin for cluster in context.answering)
    return RoutePiece(named=(named, _set(BACKEND_VARIABLE, backends)))


def reason_variable(reason: LocalReason) -> Directive:
    """Return the directive of a location that answers itself, for the reason."""
    return _set(REASON_VARIABLE, reason)


def _set(variable: str, text: str) -> Directive:
    return simple_directive("set", variable, quoting.quote_text_literal(text))


def default_values() -> list[Directive]:
    """Return the definitions of the variables that locations set."""
    # For requests that reach no location. `geo` is cheaper than `map`.
    return [
        block("geo", (variable,), (simple_directive("default", '""'),))
        for variable in (ROUTE_VARIABLE, BACKEND_VARIABLE, REASON_VARIABLE)
    ]


def access_log_file(
    edge: DataPlaneSettings, capabilities: NginxCapabilities, gateway: str
) -> Fragment[File]:
    """Return the file that enables the log in the ``http`` context; none if nothing is logged.

    ``gateway``: ``namespace/name``.
    """
    settings = edge.access_log
    if settings is None or not capabilities.access_log:
        return Fragment()
    unsupported: tuple[Unsupported, ...] = ()
    missing = log_lines.missing_number(settings.style)
    traced = capabilities.exported(edge.traces) is not None
    line = _line(gateway, settings.style, capabilities, traced=traced)
    definitions = [*_maps(missing), _log_format("escape=json", *line)]
    if settings.nginx.text:
        try:
            text = log_formats.format_text(settings.nginx.text)
            definitions = [_log_format(f"escape={settings.nginx.escape}", text)]
        except Exception as error:
            source = UnsupportedSetting(edge.source("log").field("format"), str(error))
            unsupported = (served_without(gateway_origin(gateway), source),)
    condition = _condition(settings)
    words = (*_OUTPUT, *(("if=$gh_log_chosen",) if condition else ()))
    enabled = simple_directive("access_log", words[0], _FORMAT, *words[1:])
    text = format_directives([*definitions, *condition, enabled])
    return Fragment((File.make(names.ACCESS_LOG, text),), unsupported)


def _log_format(*words: str) -> Directive:
    return simple_directive("log_format", _FORMAT, *words)


def _condition(settings: AccessLog) -> list[Directive]:
    """Return the definition of the variable that chooses the logged requests; none for all."""
    classes = "".join(map(str, settings.status_classes))
    chosen = f'"~^{{sampled}}[{classes}]"' if classes else '"~^{sampled}"'
    if settings.percent == 100:
        rows = {chosen.format(sampled=""): "1"}
        return [map_block("$status", "$gh_log_chosen", rows, "0")] if classes else []
    shares = [simple_directive(f"{settings.percent}%", "1"), simple_directive("*", "0")]
    rows = {chosen.format(sampled="1"): "1"}
    return [
        block("split_clients", ("$request_id", "$gh_log_sampled"), shares),
        map_block('"$gh_log_sampled$status"', "$gh_log_chosen", rows, "0"),
    ]


def _line(
    gateway: str, style: Style, capabilities: NginxCapabilities, *, traced: bool
) -> list[str]:
    """Return the text of an entry, in pieces that NGINX joins. ``traced``: NGINX begins traces."""
    listener = _FIELDS["listener"].format(gateway=quoting.quote_text_literal(gateway)[1:-1])
    own = {"listener": listener} | ({"trace_id": "$otel_trace_id"} if traced else {})
    if capabilities.failure_causes:
        own["reason"] = _FIELDS["reason"] + MARK_VARIABLE
    # The first variable is a map whose pattern sets those of the path and the trace.
    return log_lines.line({"time": "$gh_log_time"} | _FIELDS | own, style)


def _maps(missing: str) -> list[Directive]:
    """Return the maps of all fields. ``missing``: value of numbers that do not exist."""
    rest = (
        r"(?<gh_log_path>[^? ]*)[^ ]* "
        r"(?<gh_log_protocol>HTTP/[23]|[^ ]*)(?:\.0)? "
        r"(?:[0-9a-f]{2}-(?<gh_log_trace>[0-9a-f]{32})-)?"
    )
    times = r'"~^(?:.* )?(?<gh_log_seconds>\d+\.\d+),? (?:[^ ]+ )*(?<gh_log_endpoint>[^ ]*:[^ ]+)$"'
    attempts = {
        rf'"~^(?:[^ ]+(?: :)? ){{{number}}}[^ ]+$"': str(number + 1)
        for number in range(_MAX_COUNTED_ATTEMPTS)
    }
    content = '"$content_type $sent_http_grpc_status$sent_trailer_grpc_status $status"'
    upstream = '"$upstream_response_time $upstream_addr"'
    most = str(_MAX_COUNTED_ATTEMPTS + 1)
    return [
        time_map(_TIME_SOURCE, rest),
        # JSON permits no leading zeros.
        map_block("$status", "$gh_log_status", {"000": "0", _HTTP_09: "9"}, "$status"),
        map_block(content, "$gh_log_grpc_status", dict(_grpc_statuses(missing)), missing),
        map_block(upstream, "$gh_log_upstream_ms", {times: '"${gh_log_seconds}e3"'}, missing),
        map_block("$upstream_addr", "$gh_log_attempts", {**attempts, '""': "0"}, most),
        reason_map(_REASON_SOURCE, _REASONS),
    ]


def _grpc_statuses(missing: str) -> Iterator[tuple[str, str]]:
    """Yield the rows for the content type, gRPC status and HTTP status of a request.

    Without a gRPC status, clients derive it from the HTTP status, as the gRPC protocol defines.
    """
    call = r"^application/grpc(?:[+;][^ ]*)?(?: [^ ]+)*"
    # Most requests: NGINX tries no other pattern.
    yield '"~*^(?!application/grpc)"', missing
    known = rf'"~*{call} (?<gh_log_call_status>0|[1-9]\d?) \d+$"'
    yield known, "$gh_log_call_status"
    derived = {"400": 13, "401": 16, "403": 7, "404": 12, "(?:429|50[234])": 14}
    for statuses, number in derived.items():
        yield f'"~*{call}  {statuses}$"', str(number)
    yield rf'"~*{call}  \d+$"', "2"
