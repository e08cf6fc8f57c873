"""Local replies of Envoy: ``Status`` objects, which all Kubernetes clients understand."""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)

from gatehouse.compiler.backends.envoy import headers, names
from gatehouse.compiler.backends.envoy.protobufs import Json, wrap_number

_Mapper = manager_pb2.ResponseMapper

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    500: "InternalError",
    502: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""Values of ``metav1.StatusReason``; other codes have no reason."""

_BODY = "%LOCAL_REPLY_BODY%"

LIMITED = f"%METADATA(ROUTE:{names.SCRIPT}:limited)%"
"""Route metadata: the message for requests that a limit rejects."""

LOST = (
    "the connection to the server was lost before it responded; it may have processed the request"
)
"""Message for requests that a server has received and not answered."""

_BUSY, _AWAY = 1, 60
"""Values of Retry-After in seconds."""


def cluster_replies() -> manager_pb2.LocalReplyConfig:
    """Return the local replies of a port for known hostnames."""
    proto = manager_pb2.LocalReplyConfig()
    proto.mappers.extend(_limits())
    unready = _mapper(_flag("UH"), 503, "no ready endpoints", retry_after=_AWAY)
    # The script adds the reasons for authenticated users, and removes the header.
    unready.headers_to_add.append(headers.option(names.UNREADY_HEADER, "%REQ(IMPERSONATE-USER)%"))
    proto.mappers.append(unready)
    # The last server is never ejected, so that it may be available again soon.
    proto.mappers.append(
        _mapper(_flag("UF"), 503, "no endpoint could be connected to", retry_after=_BUSY)
    )
    # Not 503, which clients read as not processed. They must not send a write again blindly.
    proto.mappers.append(_mapper(_flag("UC", "UR", "UPE"), 502, LOST))
    # A missing scope must not look like an object that does not exist.
    proto.mappers.append(_mapper(_flag("NR"), 503, "the gateway is changing", retry_after=_BUSY))
    proto.mappers.extend(_codes())
    return proto


def unknown_host() -> manager_pb2.LocalReplyConfig:
    """Return the local replies of a port for unknown hostnames."""
    message = "the request cluster(%REQ(:AUTHORITY)%) is not being proxied"
    proto = manager_pb2.LocalReplyConfig()
    proto.mappers.append(_mapper(_code(503), 503, message, retry_after=_AWAY))
    proto.mappers.extend(_codes())
    return proto


def _limits() -> Iterator[manager_pb2.ResponseMapper]:
    """Yield mappers for limits: of a circuit breaker (flag UO), or of a filter in a flow scope."""
    in_flow_scope = accesslog_pb2.AccessLogFilter()
    in_flow_scope.header_filter.header.name = names.SCOPE_HEADER
    in_flow_scope.header_filter.header.string_match.contains = f":{names.FLOW_SCOPES}"
    rate_limited = accesslog_pb2.AccessLogFilter()
    rate_limited.and_filter.filters.extend([_code(429), in_flow_scope])
    for limited in (_flag("UO"), rate_limited):
        event = accesslog_pb2.AccessLogFilter()
        event.and_filter.filters.extend([limited, _is_event_report()])
        # Clients that report Events must not report them again.
        yield _mapper(event, 429, LIMITED)
        yield _mapper(limited, 429, LIMITED, retry_after=_BUSY)


def _is_event_report() -> accesslog_pb2.AccessLogFilter:
    proto = accesslog_pb2.AccessLogFilter()
    matcher = proto.metadata_filter.matcher
    matcher.filter = names.SCRIPT
    matcher.path.add(key="events")
    matcher.value.bool_match = True
    proto.metadata_filter.match_if_key_not_found.value = False
    return proto


def _codes() -> Iterator[manager_pb2.ResponseMapper]:
    for code in _REASONS:
        yield _mapper(_code(code), code, _BODY)
    proto = _Mapper(filter=accesslog_pb2.AccessLogFilter())
    proto.filter.status_code_filter.comparison.op = accesslog_pb2.ComparisonFilter.GE
    proto.filter.status_code_filter.comparison.value.default_value = 400
    proto.filter.status_code_filter.comparison.value.runtime_key = "gatehouse.unused"
    proto.body_format_override.json_format.update(_status("%RESPONSE_CODE%", "", _BODY, 0))
    yield proto


def _mapper(
    log_filter: accesslog_pb2.AccessLogFilter, code: int, message: str, *, retry_after: int = 0
) -> manager_pb2.ResponseMapper:
    proto = _Mapper(filter=log_filter, status_code=wrap_number(code))
    proto.body_format_override.json_format.update(
        _status(code, _REASONS[code], message, retry_after)
    )
    if retry_after:
        proto.headers_to_add.append(headers.option("retry-after", str(retry_after)))
    return proto


def _status(code: int | str, reason: str, message: str, retry_after: int) -> dict[str, Json]:
    status: dict[str, Json] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    if retry_after:
        status["details"] = {"retryAfterSeconds": retry_after}
    return status


def _flag(*flags: str) -> accesslog_pb2.AccessLogFilter:
    """Match responses with any of these flags."""
    proto = accesslog_pb2.AccessLogFilter()
    proto.response_flag_filter.flags.extend(flags)
    return proto


def _code(code: int) -> accesslog_pb2.AccessLogFilter:
    proto = accesslog_pb2.AccessLogFilter()
    proto.status_code_filter.comparison.value.default_value = code
    proto.status_code_filter.comparison.value.runtime_key = "gatehouse.unused"
    return proto
