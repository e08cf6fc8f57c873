"""Findings about load balancers and Services: conditions or Events."""

from __future__ import annotations

import enum

import msgspec


class ConditionReason(enum.Enum):
    """Reasons of conditions without a finding, as (condition type, status, reason)."""

    ACCEPTED = ("Accepted", True, "Accepted")
    """The object is valid."""
    NOT_ACCEPTED = ("Programmed", False, "NotAccepted")
    """The object is invalid or has no usable host."""
    HOST_SYNC_FAILED = ("Programmed", False, "HostSyncFailed")
    """Hosts are unreachable or rejected servers. The message has the error of each host."""
    PENDING = ("Programmed", False, "Pending")
    """Hosts are not synchronized yet."""
    PROGRAMMED = ("Programmed", True, "Programmed")
    """All hosts have the desired servers."""


class LoadBalancerReason(enum.Enum):
    """Reasons of findings: of the condition `Accepted` and of Events."""

    INVALID = "Invalid"
    """The object does not exist, or a field is invalid."""
    INVALID_HOST = "InvalidHost"
    """An entry of `spec.hosts` is invalid, or none is valid."""
    INVALID_SECRET = "InvalidSecretRef"  # noqa: S105
    """A referenced Secret does not exist or has no valid content. No host is updated."""
    UNSUPPORTED_TYPE = "UnsupportedType"
    """`spec.type` has an unknown value."""
    UNSUPPORTED = "UnsupportedField"
    """A field has no effect on hosts of this type. The other fields apply."""
    NOT_VERIFIED = "TLSVerificationDisabled"
    """The certificates of the hosts are not verified (`spec.tls.mode: SkipVerify`)."""
    CERTIFICATE_EXPIRED = "CertificateExpired"
    """The client certificate has expired, or all CA certificates that verify the hosts have."""
    CERTIFICATE_EARLY = "CertificateNotYetValid"
    """The client certificate is not valid yet, or no CA certificate is."""
    CERTIFICATE_EXPIRES = "CertificateExpiresSoon"
    """A certificate expires within 14 days, or is in the last fifth of its validity if that is
    shorter.
    """
    CERTIFICATE_SOME_EXPIRED = "CertificateSomeExpired"
    """Some of several CA certificates have expired, and others are valid."""
    INVALID_PORT = "InvalidPort"
    """A port of the Service has an invalid upstream name, or the type of the Service is not
    supported.
    """
    CONFLICT = "UpstreamConflict"
    """An other Service has the same upstream name."""
    NO_SERVERS = "NoServers"
    """The Service port has no usable server: no ready endpoint, suitable Node or load balancer
    address.
    """
    LISTENER_CONFLICT = "ListenerConflict"
    """A listener of a machine is invalid or conflicts with an earlier one."""
    NO_UPSTREAM = "UpstreamNotFound"
    """No Service port has the upstream name and protocol of a listener."""
    NO_LISTENER = "NoListener"
    """No listener uses the upstream of the Service port."""


class LoadBalancerFinding(msgspec.Struct, frozen=True):
    """A reason and a message that names object and field."""

    reason: LoadBalancerReason
    message: str


class Note(msgspec.Struct, frozen=True):
    """A finding about a Service."""

    service: tuple[str, ...]
    """Key of the Service."""
    finding: LoadBalancerFinding
