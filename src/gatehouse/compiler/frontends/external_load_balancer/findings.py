"""Findings about load balancers and Services: conditions or Events."""

from __future__ import annotations

import enum

import msgspec


class Reason(enum.Enum):
    """Reasons of conditions and Events."""

    INVALID = "Invalid"
    INVALID_HOST = "InvalidHost"
    INVALID_SECRET = "InvalidSecretRef"  # noqa: S105
    UNSUPPORTED_TYPE = "UnsupportedType"
    NOT_VERIFIED = "TLSVerificationDisabled"
    INVALID_PORT = "InvalidPort"
    CONFLICT = "UpstreamConflict"
    NO_SERVERS = "NoServers"
    LISTENER_CONFLICT = "ListenerConflict"
    NO_UPSTREAM = "UpstreamNotFound"
    NO_LISTENER = "NoListener"


class Finding(msgspec.Struct, frozen=True):
    """A reason and a message that names object and field."""

    reason: Reason
    message: str


class Note(msgspec.Struct, frozen=True):
    """A finding about a Service."""

    service: tuple[str, ...]
    """Key of the Service."""
    finding: Finding
