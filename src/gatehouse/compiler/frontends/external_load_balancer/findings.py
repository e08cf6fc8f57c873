"""Findings: what is to be said of an object, whether as condition or as Event."""

from __future__ import annotations

import enum

import msgspec


class Reason(enum.Enum):
    """Why something is not as somebody may have expected; the values are what users see."""

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
    """One thing that is so, with a message that names object and field."""

    reason: Reason
    message: str


class Note(msgspec.Struct, frozen=True):
    """A finding about a Service."""

    service: tuple[str, ...]
    """Its key."""
    finding: Finding
