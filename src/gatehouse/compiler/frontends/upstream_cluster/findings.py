"""Findings about UpstreamClusters, and the conditions that they become."""

from __future__ import annotations

import enum

import msgspec


class Reason(enum.Enum):
    """Reasons of conditions, as (condition type, status, reason)."""

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
"""Condition types that are present only when a finding has them."""


class Finding(msgspec.Struct, frozen=True):
    """A reason and a message that names field and value."""

    reason: Reason
    message: str
