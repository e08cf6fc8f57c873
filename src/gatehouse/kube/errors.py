"""Exceptions for failed requests to an API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class ApiError(Exception):
    """Raised if a request failed. Subclasses are the failures that callers distinguish."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message or reason)
        self.status = status
        """HTTP status; 0 without a response."""
        self.reason = reason
        """Kubernetes' one-word reason, such as ``AlreadyExists``; may be empty."""
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        """``details`` of the Status object: name, kind, causes."""
        self.retry_after = retry_after
        """Minimum delay in seconds requested by the server; None if it requested none."""


class BadRequest(ApiError):
    """400: the request is invalid, also if detected before sending it."""


class Unauthorized(ApiError):
    """401: the client is not authenticated."""


class Forbidden(ApiError):
    """403: the client is not authorized."""


class NamespaceTerminating(Forbidden):
    """403: the namespace is being deleted, so that nothing can be created in it."""


class NotFound(ApiError):
    """404: no such object, namespace or resource."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a precondition does not hold."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: an object of this name exists."""


class Gone(ApiError):
    """410: the resource version or continue token is older than the server's history."""


class Invalid(ApiError):
    """422: the object violates its schema; ``details["causes"]`` names the fields."""


class Unavailable(ApiError):
    """No response, 429 or 5xx: the same request may succeed later."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Unavailable,
}


class _Status(msgspec.Struct):
    """Fields of ``meta/v1 Status`` that errors use."""

    message: str = ""
    reason: str = ""
    details: dict[str, Any] | None = None
    code: int = 0


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error for an HTTP response that is not 2xx, whatever its body."""
    try:
        parsed = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        text = body[:200].decode("utf-8", "replace").strip()
        parsed = _Status(message=f"HTTP {status}: {text}" if text else f"HTTP {status}")
    return _error(status, parsed, _retry_after(headers.get("Retry-After", ""), parsed))


def error_from_status(status: Mapping[str, Any]) -> ApiError:
    """Return the error for the Status object of a watch's ERROR event."""
    try:
        parsed = msgspec.convert(status, _Status)
    except msgspec.ValidationError:
        parsed = _Status(message="the watch ended with an invalid error")
    return _error(parsed.code or 500, parsed, _retry_after("", parsed))


def _error(status: int, parsed: _Status, retry_after: float | None) -> ApiError:
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else ApiError)
    if status == 409 and parsed.reason == "AlreadyExists":
        kind = AlreadyExists
    causes = (parsed.details or {}).get("causes") or ()
    if any(cause.get("reason") == NamespaceTerminating.__name__ for cause in causes):
        kind = NamespaceTerminating
    return kind(status, parsed.reason, parsed.message, parsed.details, retry_after)


def _retry_after(header: str, parsed: _Status) -> float | None:
    # The HTTP date form exists in RFC 9110, but no API server sends it.
    if header.strip().isdigit():
        return float(header)
    seconds = (parsed.details or {}).get("retryAfterSeconds")
    return float(seconds) if isinstance(seconds, int) and seconds > 0 else None
