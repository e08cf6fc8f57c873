"""What an API server, or the way to it, can answer instead of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class ApiError(Exception):
    """A request failed. The subclasses are the failures that callers tell apart."""

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
        """HTTP status; 0 when there was no answer."""
        self.reason = reason
        """Kubernetes' one-word reason, such as ``AlreadyExists``; may be empty."""
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        """``details`` of the Status object: name, kind, causes."""
        self.retry_after = retry_after
        """Seconds that the server asks to wait before the next attempt, if it did."""


class BadRequest(ApiError):
    """400: the request makes no sense to the server, or would make none."""


class Unauthorized(ApiError):
    """401: the server does not know who asks."""


class Forbidden(ApiError):
    """403: the server knows who asks and says no."""


class NotFound(ApiError):
    """404: no such object, namespace or resource."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a precondition does not hold."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: an object of that name is there."""


class Gone(ApiError):
    """410: the resource version or continue token is older than what the server remembers."""


class Invalid(ApiError):
    """422: the object breaks its schema; ``details["causes"]`` names the fields."""


class Unavailable(ApiError):
    """No answer, 429 or 5xx: the same request may succeed later."""


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
    """The fields of ``meta/v1 Status`` that an error carries."""

    message: str = ""
    reason: str = ""
    details: dict[str, Any] | None = None
    code: int = 0


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Make the error for an HTTP response that is no success; any body will do."""
    try:
        parsed = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        text = body[:200].decode("utf-8", "replace").strip()
        parsed = _Status(message=f"HTTP {status}: {text}" if text else f"HTTP {status}")
    return _error(status, parsed, _retry_after(headers.get("Retry-After", ""), parsed))


def error_from_status(status: Mapping[str, Any]) -> ApiError:
    """Make the error for the Status object of a watch's ERROR event."""
    try:
        parsed = msgspec.convert(status, _Status)
    except msgspec.ValidationError:
        parsed = _Status(message="the watch ended with an error that cannot be read")
    return _error(parsed.code or 500, parsed, _retry_after("", parsed))


def _error(status: int, parsed: _Status, retry_after: float | None) -> ApiError:
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else ApiError)
    if status == 409 and parsed.reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(status, parsed.reason, parsed.message, parsed.details, retry_after)


def _retry_after(header: str, parsed: _Status) -> float | None:
    # The HTTP date form exists in RFC 9110, but no API server sends it.
    if header.strip().isdigit():
        return float(header)
    seconds = (parsed.details or {}).get("retryAfterSeconds")
    return float(seconds) if isinstance(seconds, int) and seconds > 0 else None
