"""Parsers of the request log (:mod:`gatehouse.dataplane.request_log`), one for each proxy.

The first fields of a line, its head, have few different values, so that their parts are found once
for many lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gatehouse.agent.request_families import METHODS, NO_STATUS, OTHER, STATUS_CLASSES
from gatehouse.dataplane.backend_failures import BACKEND_FAILURES, RESET
from gatehouse.dataplane.failed_attempts import MARK_START
from gatehouse.dataplane.request_log import NGINX_NUMBERS

_MISSING = (b"-", b"")

_METHODS = {method.encode(): method for method in METHODS}
_CLASSES = {name[:1].encode(): name for name in STATUS_CLASSES}

_NO_ENDPOINT, _CONNECTION_FAILURE, _TIMEOUT = "no_endpoint", "connection_failure", "timeout"
_OWN_REASONS = {text.encode(): text for text in (_NO_ENDPOINT, _CONNECTION_FAILURE, _TIMEOUT)}
"""Reasons of responses by NGINX itself that still concern the backend."""

_CAUSES = {failure.reason.encode(): failure.reason for failure in BACKEND_FAILURES}
"""Causes from the error log of NGINX."""

_CLOSED = "client_closed"
"""Reason of a request whose client closed the connection."""

_NGINX_REASONS = {
    b"502": _CONNECTION_FAILURE,
    b"504": _TIMEOUT,
    b"499": _CLOSED,
    b"444": _CLOSED,
}
"""Reasons by the status of a request to which no endpoint responded."""

_HTTP_09 = b"009"
"""Status in NGINX's log of a response that is no HTTP."""

_ENVOY_REASONS = {
    "no_healthy_upstream": _NO_ENDPOINT,
    "downstream_remote_disconnect": _CLOSED,
    "http2.remote_reset": _CLOSED,
}
"""Reasons by the details of a request to which no endpoint responded."""

_CLIENT_CLOSED = (b"499", b"444")
"""Statuses in NGINX's log of connections that ended without a response."""


class Head(NamedTuple):
    """Properties that many requests have in common."""

    route: bytes
    """``namespace/name/rule``; empty: no route."""
    backend: bytes
    """``kind/namespace/name``; empty: none."""
    method: str
    status_class: str
    status_class_unanswered: str
    """Status class of a request to which no endpoint responded."""
    forwards: bool = True
    """False: attempts are not attempts at endpoints of the backend."""
    concerns_backend: bool = False
    """True: the request counts for the backend, even without an attempt."""
    reason: str = OTHER
    """Reason why no endpoint responded, if none did."""
    reason_answered: str = ""
    """Problem of the response of an endpoint; empty: none."""
    details: str = ""
    """Text of the proxy about the failure of an attempt; empty: none."""


class Format(NamedTuple):
    """Format of the lines of one proxy. The functions raise ValueError."""

    head: Callable[[bytes], Head]
    attempts: Callable[[bytes], int]
    """Returns the number of attempts at endpoints."""
    upstream: Callable[[bytes], float | None]
    """Returns the time until the endpoint of the last attempt responded; None: it did not."""
    per_second: float
    """Number of the units of durations in a second."""


class Batch:
    """Requests with the same head."""

    def __init__(self, log_format: Format, head: Head, lines: Sequence[bytes]) -> None:
        """Parse the numbers of lines. Raises ValueError if any is malformed."""
        fields = b"\t".join(lines).split(b"\t")
        width = len(NGINX_NUMBERS)
        if len(fields) != width * len(lines):
            raise ValueError(f"{len(fields)} fields in {len(lines)} lines")
        durations, upstream, attempts, received, sent = (fields[n::width] for n in range(width))
        self.received, self.sent = sum(map(int, received)), sum(map(int, sent))
        self.durations = [
            (float(text) / log_format.per_second, times)
            for text, times in Counter(durations).items()
        ]
        self.upstream: list[tuple[float, int]] = []
        """Times until endpoints responded, and the number of requests with each."""
        self.retries = self.answered = 0
        self.unanswered = 0
        """Requests that were forwarded, but not answered by an endpoint."""
        if not head.forwards:
            return
        for (time, text), times in Counter(zip(upstream, attempts, strict=True)).items():
            if number := log_format.attempts(text):
                self.retries += (number - 1) * times
                answered = log_format.upstream(time)
                if answered is None:
                    self.unanswered += times
                else:
                    self.answered += times
                    self.upstream.append((answered, times))


def _nginx_head(text: bytes) -> Head:
    route, backend, reason, status, method = text.split(b"\t", 4)
    reason, _, cause = reason.partition(MARK_START.encode())
    status_class = _CLASSES.get(status[:1], NO_STATUS)
    return Head(
        _present(route),
        _present(backend),
        _METHODS.get(method, OTHER),
        status_class,
        NO_STATUS if status in _CLIENT_CLOSED else status_class,
        # A location that answers itself may ask the authenticator, which is no endpoint.
        forwards=reason in _MISSING,
        concerns_backend=reason in _OWN_REASONS,
        reason=_CAUSES.get(cause) or _OWN_REASONS.get(reason) or _NGINX_REASONS.get(status, OTHER),
        reason_answered="backend_protocol" if status == _HTTP_09 else "",
    )


def _nginx_attempts(times: bytes) -> int:
    if times in _MISSING:
        return 0
    # The values of attempts are separated by a comma, or by a colon after a redirection.
    return 1 + times.count(b",") + times.count(b":") if b" " in times else 1


def _nginx_upstream(times: bytes) -> float | None:
    last = times.rpartition(b" ")[2]
    return None if last in _MISSING else float(last)


def _envoy_head(text: bytes) -> Head:
    # A method of an HTTP/2 request may contain a tab.
    route, backend, status, method = text.split(b"\t", 3)
    status_class = _CLASSES.get(status[:1], NO_STATUS)
    known = _METHODS.get(method, OTHER)
    details = status.partition(b" ")[2].decode(errors="replace")
    reason = _ENVOY_REASONS.get(details) or _failure(details)
    return Head(
        _present(route),
        _present(backend),
        known,
        status_class,
        status_class,
        reason=reason,
        details="" if reason in (_NO_ENDPOINT, _CLOSED, OTHER) else details,
    )


def _failure(details: str) -> str:
    """Return the reason that response code details mean."""
    for failure in BACKEND_FAILURES:
        is_reset = details.startswith(RESET) or not failure.reset
        if is_reset and all(word in details for word in failure.words):
            return failure.reason
    return OTHER


def _envoy_attempts(text: bytes) -> int:
    """Return the number of attempts. A search for an endpoint is one, even if there is none."""
    return 0 if text in _MISSING else int(text)


def _envoy_upstream(time: bytes) -> float | None:
    return None if time in _MISSING else int(time) / 1000


def _present(text: bytes) -> bytes:
    return b"" if text in _MISSING else text


NGINX_LINES = Format(_nginx_head, _nginx_attempts, _nginx_upstream, 1)
ENVOY_LINES = Format(_envoy_head, _envoy_attempts, _envoy_upstream, 1000)
