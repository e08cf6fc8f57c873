"""Findings: what is to be said of an UpstreamCluster, and the condition that says it."""

from __future__ import annotations

import enum

import msgspec


class Reason(enum.Enum):
    """Every reason that a condition can have: (condition type, status, reason)."""

    ACCEPTED = ("Accepted", True, "Accepted")
    INVALID = ("Accepted", False, "Invalid")
    NO_MATCHING_GATEWAY = ("Accepted", False, "NoMatchingGateway")
    NO_HOST = ("Accepted", False, "HostConflict")
    PARTIALLY_INVALID = ("PartiallyInvalid", True, "UnsupportedValue")
    RESOLVED = ("ResolvedRefs", True, "ResolvedRefs")
    INVALID_CREDENTIALS = ("ResolvedRefs", False, "InvalidCredentials")
    CONFLICTED = ("Conflicted", True, "HostConflict")
    CERTIFICATE_EXPIRED = ("CertificateValid", False, "Expired")
    CERTIFICATE_EARLY = ("CertificateValid", False, "NotYetValid")
    NAMES_NOT_COVERED = ("CertificateValid", False, "HostnameMismatch")
    DIFFERS = ("KubeGatewayCompatible", False, "SemanticsDiffer")
    PROGRAMMED = ("Programmed", True, "Programmed")
    PENDING = ("Programmed", False, "Pending")
    NOT_PROGRAMMED = ("Programmed", False, "Invalid")
    NO_CERTIFICATE = ("Programmed", False, "CertificateNotFound")


OPTIONAL = frozenset(
    {
        "PartiallyInvalid",
        "Conflicted",
        "CertificateValid",
        "KubeGatewayCompatible",
    }
)
"""Types of conditions that are only there when something is to be said."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is so, with a message that names field and value."""

    reason: Reason
    message: str
