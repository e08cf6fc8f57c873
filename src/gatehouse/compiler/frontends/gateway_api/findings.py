"""Findings about objects, and the conditions that they become."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import msgspec

_NGINX = "gateway.nginx.org/"


class Reason(enum.Enum):
    """Reasons of conditions, as (condition type, status, reason)."""

    ACCEPTED = ("Accepted", True, "Accepted")
    SUPPORTED_VERSION = ("SupportedVersion", True, "SupportedVersion")
    OTHER_VERSION = ("SupportedVersion", False, "UnsupportedVersion")
    UNSUPPORTED_VERSION = ("Accepted", False, "UnsupportedVersion")
    GATEWAY_LISTENERS_INVALID = ("Accepted", False, "ListenersNotValid")
    GATEWAY_SOME_LISTENERS_INVALID = ("Accepted", True, "ListenersNotValid")
    INVALID_PARAMETERS = ("Accepted", False, "InvalidParameters")
    UNSUPPORTED_ADDRESS = ("Accepted", False, "UnsupportedAddress")
    ADDRESS_NOT_USABLE = ("Programmed", False, "AddressNotUsable")
    PROGRAMMED = ("Programmed", True, "Programmed")
    PENDING = ("Programmed", False, "Pending")
    NOT_PROGRAMMED = ("Programmed", False, "Invalid")
    NO_RESOURCES = ("Programmed", False, "NoResources")
    INSECURE_FRONTEND = ("InsecureFrontendValidationMode", True, "ConfigurationChanged")
    INVALID_CLIENT_CERTIFICATE = ("ResolvedRefs", False, "InvalidClientCertificateRef")
    SET_NOT_ALLOWED = ("Accepted", False, "NotAllowed")
    SET_NOT_ALLOWED_PROGRAMMED = ("Programmed", False, "NotAllowed")
    SET_PARENT_NOT_ACCEPTED = ("Accepted", False, "ParentNotAccepted")
    SET_LISTENERS_INVALID_PROGRAMMED = ("Programmed", False, "ListenersNotValid")
    UNSUPPORTED_PROTOCOL = ("Accepted", False, "UnsupportedProtocol")
    NO_CONFLICTS = ("Conflicted", False, "NoConflicts")
    PROTOCOL_CONFLICT = ("Conflicted", True, "ProtocolConflict")
    PROTOCOL_CONFLICT_REFUSED = ("Accepted", False, "ProtocolConflict")
    PROTOCOL_CONFLICT_UNSERVED = ("Programmed", False, "ProtocolConflict")
    HOSTNAME_CONFLICT = ("Conflicted", True, "HostnameConflict")
    HOSTNAME_CONFLICT_REFUSED = ("Accepted", False, "HostnameConflict")
    HOSTNAME_CONFLICT_UNSERVED = ("Programmed", False, "HostnameConflict")
    RESOLVED = ("ResolvedRefs", True, "ResolvedRefs")
    INVALID_CERTIFICATE_REF = ("ResolvedRefs", False, "InvalidCertificateRef")
    INVALID_CA_REF = ("ResolvedRefs", False, "InvalidCACertificateRef")
    INVALID_CA_KIND = ("ResolvedRefs", False, "InvalidCACertificateKind")
    NO_VALID_CA = ("Accepted", False, "NoValidCACertificate")
    POLICY_INVALID = ("Accepted", False, "Invalid")
    POLICY_CONFLICTED = ("Accepted", False, "Conflicted")
    POLICY_TARGET_NOT_FOUND = ("Accepted", False, "TargetNotFound")
    NGINX_PROXY_NOT_SET = ("Accepted", False, "NginxProxyConfigNotSet")
    CLIENT_SETTINGS_AFFECTED = (f"{_NGINX}ClientSettingsPolicyAffected", True, "PolicyAffected")
    PROXY_SETTINGS_AFFECTED = (f"{_NGINX}ProxySettingsPolicyAffected", True, "PolicyAffected")
    RATE_LIMIT_AFFECTED = (f"{_NGINX}RateLimitPolicyAffected", True, "PolicyAffected")
    SNIPPETS_AFFECTED = (f"{_NGINX}SnippetsPolicyAffected", True, "PolicyAffected")
    OBSERVABILITY_AFFECTED = (f"{_NGINX}ObservabilityPolicyAffected", True, "PolicyAffected")
    INVALID_ROUTE_KINDS = ("ResolvedRefs", False, "InvalidRouteKinds")
    REF_NOT_PERMITTED = ("ResolvedRefs", False, "RefNotPermitted")
    NO_MATCHING_PARENT = ("Accepted", False, "NoMatchingParent")
    OVERLAPPING_TLS = ("OverlappingTLSConfig", True, "OverlappingHostnames")
    NOT_ALLOWED = ("Accepted", False, "NotAllowedByListeners")
    NO_MATCHING_HOSTNAME = ("Accepted", False, "NoMatchingListenerHostname")
    UNSUPPORTED_VALUE = ("Accepted", False, "UnsupportedValue")
    PARTIALLY_INVALID = ("PartiallyInvalid", True, "UnsupportedValue")
    INVALID_KIND = ("ResolvedRefs", False, "InvalidKind")
    BACKEND_NOT_FOUND = ("ResolvedRefs", False, "BackendNotFound")
    UNSUPPORTED_BACKEND_PROTOCOL = ("ResolvedRefs", False, "UnsupportedProtocol")
    INVALID_FILTER = ("ResolvedRefs", False, "InvalidFilter")


OPTIONAL = frozenset(
    {
        "PartiallyInvalid",
        "SupportedVersion",
        "InsecureFrontendValidationMode",
        "OverlappingTLSConfig",
    }
    | {kind for kind, _, reason in (each.value for each in Reason) if reason == "PolicyAffected"}
)
"""Condition types that are present only when a finding has them."""


class Finding(msgspec.Struct, frozen=True):
    """A reason and a message that names object and field."""

    reason: Reason
    message: str


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition without ``lastTransitionTime``."""

    type: str
    status: str = "True"
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class AnyFinding(Protocol):
    """A finding of this front end or of a plug-in."""

    @property
    def reason(self) -> enum.Enum:
        """Enum whose values are (condition type, status, reason)."""

    @property
    def message(self) -> str:
        """Message that names object and field."""


def condition(finding: AnyFinding, generation: int) -> Condition:
    """Return the condition for ``finding`` about an object's ``generation``."""
    return _condition(finding.reason, finding.message, generation)


def _condition(reason_value: enum.Enum, message: str, generation: int) -> Condition:
    kind, holds, reason = reason_value.value
    # 32,768 is the longest message of a Kubernetes condition.
    return Condition(kind, "True" if holds else "False", reason, message[:32768], generation)


def conditions(
    findings: Sequence[AnyFinding], defaults: Sequence[AnyFinding], generation: int
) -> tuple[Condition, ...]:
    """Fold findings into one condition per type; types without a finding get their default.

    The first finding of a type sets status and reason. The messages of all findings with that
    reason are joined.
    """
    first: dict[str, tuple[enum.Enum, str]] = {}
    for finding in (*findings, *defaults):
        kind = finding.reason.value[0]
        reason, message = first.setdefault(kind, (finding.reason, finding.message))
        if reason is finding.reason and finding.message not in message:
            first[kind] = (reason, f"{message}; {finding.message}")
    return tuple(_condition(*found, generation) for _, found in sorted(first.items()))
