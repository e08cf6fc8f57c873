"""Access log of connections: one JSON object per connection or UDP session.

The names of the fields and reasons are those of requests, and the same as of NGINX. Listeners log
the connections that match no filter chain.
"""

from __future__ import annotations

from collections.abc import Mapping

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2

from gatehouse.compiler.backends.envoy import connection_counts, log_entries, quoting
from gatehouse.compiler.backends.envoy.log_entries import ListenerLog
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.ir.access_log import LocalReason, object_rule_text
from gatehouse.dataplane.backend_failures import BACKEND_FAILURES, TLS_ERROR
from gatehouse.dataplane.origin import Origin

PROXY_DESTINATION = "%DOWNSTREAM_LOCAL_ADDRESS%"
CONNECT_DESTINATION = "%REQ(X-GARDENER-DESTINATION?:AUTHORITY)%"

_UNQUOTED_DESTINATION = log_entries.expression(
    "'x-gardener-destination' in request.headers ? "
    "(request.headers['x-gardener-destination'].matches('^[A-Za-z0-9.:_-]*$') ? "
    "request.headers['x-gardener-destination'] : '') : "
    "(request.host.matches('^[A-Za-z0-9.:_-]*$') ? request.host : '')"
)
"""The destination; empty if it has other characters, which lines of text would not escape."""

_NO_HEALTHY_HOST, _CONNECTION_FAILURE, _NO_CLUSTER = 1, 5, 24
"""Positions of response flags in the number that CEL has."""


def _has(flag: int) -> str:
    # CEL has no bitwise operators.
    return f"response.flags / {2**flag} % 2 == 1"


_UPSTREAM = "upstream.transport_failure_reason"


def _upstream_has(*words: str) -> str:
    texts = (f"{_UPSTREAM}.contains('{word}')" for word in words)
    return " && ".join((f"has({_UPSTREAM})", *texts))


_FAILURES = (
    (
        _has(_NO_HEALTHY_HOST),
        log_entries.metadata_value("xds.cluster_metadata", "reason", LocalReason.NO_ENDPOINT),
    ),
    *(
        (_upstream_has(*failure.words), f"'{failure.reason}'")
        for failure in BACKEND_FAILURES
        if TLS_ERROR in failure.words
    ),
    (_has(_CONNECTION_FAILURE), f"'{LocalReason.CONNECTION_FAILURE}'"),
    # The TLS handshake of a connection that Envoy terminates.
    ("has(connection.transport_failure_reason)", f"'{LocalReason.BAD_REQUEST}'"),
)

_FAILURE = "connection.transport_failure_reason"
_CERTIFICATE_REJECTED = f"has({_FAILURE}) && {_FAILURE}.contains('CERTIFICATE')"
"""BoringSSL's names of the errors about certificates of clients have this word."""

_UDP_SESSION = "udp.proxy.session"

_FIELDS = log_entries.OF_CONNECTIONS | {
    "protocol": "TCP",
    "backend": log_entries.BACKEND_OF_CLUSTER,
    "bytes_received": "%BYTES_RECEIVED%",
    "bytes_sent": "%BYTES_SENT%",
}

_FIRST_ERROR = 400


def escaped_rule(origin: Origin, rule: int) -> str:
    """Return a rule as log entries name it, escaped for Envoy's format."""
    return quoting.escape_percent(object_rule_text(origin, rule))


def connection_logs(
    listener: ListenerLog,
    fields: Mapping[str, str],
    no_cluster: LocalReason = LocalReason.NO_ROUTE,
) -> list[accesslog_pb2.AccessLog]:
    """Return the logs of connections: entries, and lines for metrics.

    ``fields``: more fields. ``no_cluster``: reason if the
    connection's cluster does not exist.
    """
    reasons = (*_FAILURES, (_has(_NO_CLUSTER), f"'{no_cluster}'"))
    reason = log_entries.expression(log_entries.first_reason(reasons, ""))
    own = {"listener": quoting.escape_percent(listener.name), "reason": reason}
    values = _FIELDS | own | dict(fields)
    logs = [log_entries.entry_log(values, listener.style)] if listener.entries else []
    return [*logs, connection_counts.connection_logger(values)] if listener.counts else logs


def session_logs(listener: ListenerLog, route: str, backend: str) -> list[accesslog_pb2.AccessLog]:
    """Return the logs of a listener's UDP sessions, which know no metadata of their cluster."""
    counts = {
        name: f"%DYNAMIC_METADATA({_UDP_SESSION}:{name})%"
        for name in ("bytes_received", "bytes_sent")
    }
    fields = {
        "protocol": "UDP",
        "sni": "",
        "route": route,
        "backend": quoting.escape_percent(backend),
    }
    return connection_logs(listener, fields | counts, LocalReason.INVALID_ROUTE)


def logs_of_unmatched(
    listener: ListenerLog, fields: Mapping[str, str]
) -> list[accesslog_pb2.AccessLog]:
    """Return the logs of a listener for connections that match none of its filter chains."""
    known = {"route": "", "backend": "", "endpoint": "", "reason": LocalReason.NO_ROUTE}
    logs = connection_logs(listener, known | dict(fields))
    for proto in logs:
        proto.filter.response_flag_filter.flags.append("NR")
    return logs


def logs_of_rejected_certificates(listener: ListenerLog) -> list[accesslog_pb2.AccessLog]:
    """Return the logs of a listener for handshakes without a valid client certificate.

    They never become requests, which have a log of their own.
    """
    fields = {"route": "", "backend": "", "reason": LocalReason.CLIENT_CERTIFICATE}
    logs = connection_logs(listener, fields)
    for proto in logs:
        proto.filter.extension_filter.name = "envoy.access_loggers.extension_filters.cel"
        proto.filter.extension_filter.typed_config.CopyFrom(
            packed(cel_pb2.ExpressionFilter(expression=_CERTIFICATE_REJECTED))
        )
    return logs


_REFUSED = "response.code == 404 || response.code == 403"
"""A destination does not exist, or does not permit the client."""

_ROUTE = log_entries.metadata_value("xds.route_metadata", "route", "")

_REQUEST_REASONS = (
    (_REFUSED, f"'{LocalReason.NO_ROUTE}'"),
    ("response.code == 400 || response.code == 431", f"'{LocalReason.BAD_REQUEST}'"),
    ("response.code == 408", f"'{LocalReason.TIMEOUT}'"),
    *_FAILURES,
)


def tunnel_logs(listener: ListenerLog) -> list[accesslog_pb2.AccessLog]:
    """Return the logs of CONNECT requests: of tunnels, and of rejected requests."""
    destination = CONNECT_DESTINATION if listener.style == "json" else _UNQUOTED_DESTINATION
    fields = {"destination": destination, "route": log_entries.ROUTE_OF_REQUEST}
    opened = connection_logs(listener, fields | {"reason": ""})
    reason = log_entries.first_reason(_REQUEST_REASONS, LocalReason.REJECTED)
    # A stranger's requests must not count for the object that it names.
    route = log_entries.expression(f"({_REFUSED}) ? '' : {_ROUTE}")
    rejected_fields = fields | {"route": route, "reason": log_entries.expression(reason)}
    rejected = connection_logs(listener, rejected_fields)
    for logs, operator, code in (
        (opened, accesslog_pb2.ComparisonFilter.LE, _FIRST_ERROR - 1),
        (rejected, accesslog_pb2.ComparisonFilter.GE, _FIRST_ERROR),
    ):
        for proto in logs:
            comparison = proto.filter.status_code_filter.comparison
            comparison.op = operator
            comparison.value.default_value = code
            comparison.value.runtime_key = "gatehouse.access_log"
    return [*opened, *rejected]
