"""Findings about UpstreamClusters, and the conditions that they become."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.frontends.gateway_api.findings import ReasonBase


class ClusterReason(ReasonBase):
    """Reasons of conditions, as (condition type, status, reason)."""

    ACCEPTED = ("Accepted", True, "Accepted")
    """The UpstreamCluster is valid."""
    INVALID = ("Accepted", False, "Invalid")
    """A field is invalid, or no server is usable. The message names the field."""
    NO_MATCHING_GATEWAY = ("Accepted", False, "NoMatchingGateway")
    """No managed Gateway has a listener for the object."""
    NO_HOST = ("Accepted", False, "NoHost")
    """All hostnames of the object are invalid or belong to other UpstreamClusters."""
    PARTIALLY_INVALID = ("PartiallyInvalid", True, "UnsupportedValue")
    """Parts of the object are invalid or cannot be served. The message names them, and the rest is
    served.
    """
    RESOLVED = ("ResolvedRefs", True, "ResolvedRefs")
    """All credentials of the object are valid."""
    INVALID_CREDENTIALS = ("ResolvedRefs", False, "InvalidCredentials")
    """A Secret with credentials does not exist or has no valid content."""
    CONFLICTED = ("Conflicted", True, "HostConflict")
    """Hostnames of the object belong to other UpstreamClusters, which the message names. The others
    are served.
    """
    CERTIFICATE_EXPIRED = ("CertificateValid", False, "Expired")
    """A certificate of the object has expired."""
    CERTIFICATE_EARLY = ("CertificateValid", False, "NotYetValid")
    """A certificate of the object is not valid yet."""
    CERTIFICATE_EXPIRES = ("CertificateValid", True, "ExpiresSoon")
    """A certificate of the object expires within 14 days, or is in the last fifth of its validity
    if that is shorter. The message counts those of several CA certificates.
    """
    CERTIFICATE_SOME_EXPIRED = ("CertificateValid", True, "SomeExpired")
    """Some of several CA certificates of the object have expired, and others are valid."""
    NAMES_NOT_COVERED = ("CertificateValid", False, "HostnameMismatch")
    """The serving certificate does not cover a hostname of the object."""
    DIFFERS = ("KubeGatewayCompatible", False, "SemanticsDiffer")
    """A part of the object has another meaning than in KubeGateway. The message names it."""
    SERVERS_NOT_READY = ("ServersReady", False, "ServersNotReady")
    """Servers fail their health checks. The message names each server and the reason."""
    PROGRAMMED = ("Programmed", True, "Programmed")
    """All data planes of the Gateways confirmed the configuration."""
    PENDING = ("Programmed", False, "Pending")
    """A data plane has not confirmed the configuration yet."""
    NOT_PROGRAMMED = ("Programmed", False, "Invalid")
    """The object is not served because it is invalid, or because the proxy rejected the
    configuration.
    """
    NO_CERTIFICATE = ("Programmed", False, "CertificateNotFound")
    """Neither the object nor the listener has a valid certificate for clients."""


OPTIONAL_TYPES = frozenset(
    {
        "PartiallyInvalid",
        "Conflicted",
        "CertificateValid",
        "ServersReady",
        "KubeGatewayCompatible",
    }
)
"""Condition types that are present only when a finding has them."""


class ClusterFinding(msgspec.Struct, frozen=True):
    """A reason and a message that names field and value."""

    reason: ClusterReason
    message: str
