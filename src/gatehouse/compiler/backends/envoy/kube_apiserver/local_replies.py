"""What Envoy answers by itself: ``Status`` objects, as every client of Kubernetes reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)

from gatehouse.compiler.backends.envoy import headers, names
from gatehouse.compiler.backends.envoy.protobufs import number

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
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""Of ``metav1.StatusReason``; a code without one has no reason."""

SAID = "%LOCAL_REPLY_BODY%"

LIMITED = f"%METADATA(ROUTE:{names.SCRIPT}:limited)%"
"""In the metadata of routes: what is said to who is refused by a limit."""

_BUSY, _AWAY = 1, 60
"""Seconds after which a client is to come again."""


def of_cluster() -> Any:
    """Give the answers of a port for names that are served."""
    made = manager_pb2.LocalReplyConfig()
    made.mappers.extend(_limits())
    made.mappers.append(_mapper(_flag("UH"), 503, "no ready endpoints", wait=_AWAY))
    # A server that is left to try, because it is the last, may be there again in a moment.
    made.mappers.append(_mapper(_flag("UF"), 503, "no endpoint could be connected to", wait=_BUSY))
    # A scope that is not there yet must not look like an object that does not exist.
    made.mappers.append(_mapper(_flag("NR"), 503, "the gateway is changing", wait=_BUSY))
    made.mappers.extend(_codes())
    return made


def of_nobody() -> Any:
    """Give the answers of a port for names that are not served."""
    said = "the request cluster(%REQ(:AUTHORITY)%) is not being proxied"
    made = manager_pb2.LocalReplyConfig()
    made.mappers.append(_mapper(_code(503), 503, said, wait=_AWAY))
    made.mappers.extend(_codes())
    return made


def _limits() -> Iterator[Any]:
    """A limit is met by a breaker (the flag UO), or by a filter while the scope is still known."""
    told = accesslog_pb2.AccessLogFilter()
    told.header_filter.header.name = names.SCOPE_HEADER
    told.header_filter.header.string_match.contains = f":{names.FLOW_SCOPES}"
    refused = accesslog_pb2.AccessLogFilter()
    refused.and_filter.filters.extend([_code(429), told])
    for met in (_flag("UO"), refused):
        event = accesslog_pb2.AccessLogFilter()
        event.and_filter.filters.extend([met, _of_events()])
        # Who reports an event is not to report it again.
        yield _mapper(event, 429, LIMITED)
        yield _mapper(met, 429, LIMITED, wait=_BUSY)


def _of_events() -> Any:
    made = accesslog_pb2.AccessLogFilter()
    matcher = made.metadata_filter.matcher
    matcher.filter = names.SCRIPT
    matcher.path.add(key="events")
    matcher.value.bool_match = True
    made.metadata_filter.match_if_key_not_found.value = False
    return made


def _codes() -> Iterator[Any]:
    for code in _REASONS:
        yield _mapper(_code(code), code, SAID)
    made = _Mapper(filter=accesslog_pb2.AccessLogFilter())
    made.filter.status_code_filter.comparison.op = accesslog_pb2.ComparisonFilter.GE
    made.filter.status_code_filter.comparison.value.default_value = 400
    made.filter.status_code_filter.comparison.value.runtime_key = "gatehouse.unused"
    made.body_format_override.json_format.update(_status("%RESPONSE_CODE%", "", SAID, 0))
    yield made


def _mapper(wanted: Any, code: int, said: str, *, wait: int = 0) -> Any:
    made = _Mapper(filter=wanted, status_code=number(code))
    made.body_format_override.json_format.update(_status(code, _REASONS[code], said, wait))
    if wait:
        made.headers_to_add.append(headers.option("retry-after", str(wait)))
    return made


def _status(code: Any, reason: str, said: str, wait: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": said,
        "reason": reason,
        "code": code,
    }
    if wait:
        found["details"] = {"retryAfterSeconds": wait}
    return found


def _flag(name: str) -> Any:
    made = accesslog_pb2.AccessLogFilter()
    made.response_flag_filter.flags.append(name)
    return made


def _code(code: int) -> Any:
    made = accesslog_pb2.AccessLogFilter()
    made.status_code_filter.comparison.value.default_value = code
    made.status_code_filter.comparison.value.runtime_key = "gatehouse.unused"
    return made
