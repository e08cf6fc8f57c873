"""Statuses of gRPC for statuses of HTTP (grpc/doc/http-grpc-status-mapping.md), as Envoy has them.

Both proxies answer gRPC calls with these statuses where they answer themselves. No I/O.
"""

from __future__ import annotations

_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
"""Names of the statuses by number."""

_UNKNOWN = 2

_STATUSES = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}


def grpc_status_of(http_status: int) -> int:
    """Return the number of the gRPC status for an HTTP status."""
    return _STATUSES.get(http_status, _UNKNOWN)


def grpc_status_name(number: int) -> str:
    """Return the name of a gRPC status."""
    return _NAMES[number] if 0 <= number < len(_NAMES) else str(number)
