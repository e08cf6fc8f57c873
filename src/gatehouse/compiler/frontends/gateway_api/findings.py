"""Findings about objects, and the conditions that they become."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import msgspec

_NGINX, _GATEHOUSE = "gateway.nginx.org/", "gatehouse.dev/"


class ReasonBase(enum.Enum):
    """Base of reasons of conditions, whose values are (condition type, status, reason)."""

    def __init__(self, condition_type: str, holds: bool, reason: str) -> None:
        # Attributes are read in every pass, and `value` costs two calls.
        self.condition_type, self.holds, self.reason = condition_type, holds, reason


class Reason(ReasonBase):
    """Reasons of conditions, as (condition type, status, reason)."""

    ACCEPTED = ("Accepted", True, "Accepted")
    """The object is valid. Its message lists settings that this proxy does not support, and rules
    whose weights are all 0.
    """
    SUPPORTED_VERSION = ("SupportedVersion", True, "SupportedVersion")
    """The CRDs of Gateway API have the supported version."""
    OTHER_VERSION = ("SupportedVersion", False, "UnsupportedVersion")
    """The CRDs of Gateway API have another version. Within the same major version, objects are
    served as far as both versions agree.
    """
    UNSUPPORTED_VERSION = ("Accepted", False, "UnsupportedVersion")
    """The CRDs of Gateway API have another major version. Data planes keep their configuration."""
    GATEWAY_LISTENERS_INVALID = ("Accepted", False, "ListenersNotValid")
    """No listener of the Gateway or ListenerSet is valid. The conditions of each listener have the
    cause.
    """
    GATEWAY_SOME_LISTENERS_INVALID = ("Accepted", True, "ListenersNotValid")
    """The named listeners of the Gateway are invalid. The others are served."""
    INVALID_PARAMETERS = ("Accepted", False, "InvalidParameters")
    """The referenced parameters object is missing or invalid, or a Gateway's parameters have fields
    that only parameters of the GatewayClass may set. The message names object and fields.
    """
    MESH_NOT_SERVED = ("Accepted", False, "Unsupported")
    """The XMesh names Gatehouse, which serves no service mesh."""
    UNSUPPORTED_ADDRESS = ("Accepted", False, "UnsupportedAddress")
    """An entry of `spec.addresses` has an unsupported type, or its value is not an IP address."""
    ADDRESS_NOT_USABLE = ("Programmed", False, "AddressNotUsable")
    """The load balancer did not assign a requested address."""
    ADDRESS_NOT_ASSIGNED = ("Programmed", False, "AddressNotAssigned")
    """The Gateway gets none of the addresses that `spec.addresses` requests."""
    ADDRESSES_ASSIGNED = ("AddressesAssigned", True, "AddressesAssigned")
    """The Gateway has the addresses that `spec.addresses` requests, or those of its Service."""
    ADDRESSES_PARTIALLY_ASSIGNED = ("AddressesAssigned", False, "PartiallyAssigned")
    """The Gateway gets some of the addresses that `spec.addresses` requests. The message names the
    others.
    """
    ADDRESSES_NOT_ASSIGNED = ("AddressesAssigned", False, "NotAssigned")
    """The Gateway gets none of the addresses that `spec.addresses` requests."""
    PROGRAMMED = ("Programmed", True, "Programmed")
    """Every connected data plane instance confirmed the configuration. The message names parts that
    the proxy rejected.
    """
    PENDING = ("Programmed", False, "Pending")
    """The data plane is not provisioned, not connected for 10 s, or has not confirmed the
    configuration yet. The message names the obstacle.
    """
    NOT_PROGRAMMED = ("Programmed", False, "Invalid")
    """The object is not served because it is invalid, or because the proxy rejected the
    configuration. The message has the proxy's error text. The previous configuration stays in use.
    """
    NO_RESOURCES = ("Programmed", False, "NoResources")
    """A quota prevents the objects or Pods of the data plane."""
    DEFAULT_GATEWAY = ("DefaultGateway", True, "DefaultGateway")
    """Routes with `useDefaultGateways: All` attach to the Gateway, as far as its listeners allow
    them.
    """
    INSECURE_FRONTEND = ("InsecureFrontendValidationMode", True, "ConfigurationChanged")
    """A listener port accepts clients without a valid certificate (`AllowInsecureFallback`)."""
    INVALID_CLIENT_CERTIFICATE = ("ResolvedRefs", False, "InvalidClientCertificateRef")
    """`spec.tls.backend.clientCertificateRef` references no valid Secret of type
    `kubernetes.io/tls`.
    """
    SET_NOT_ALLOWED = ("Accepted", False, "NotAllowed")
    """`spec.allowedListeners` of the Gateway does not allow ListenerSets of this namespace."""
    SET_NOT_ALLOWED_PROGRAMMED = ("Programmed", False, "NotAllowed")
    """The ListenerSet is not served because the Gateway does not allow it."""
    SET_LISTENERS_INVALID_PROGRAMMED = ("Programmed", False, "ListenersNotValid")
    """The ListenerSet is not served because none of its listeners is valid."""
    UNSUPPORTED_PROTOCOL = ("Accepted", False, "UnsupportedProtocol")
    """The proxy of the Gateway's class does not support the protocol or TLS mode of the listener.
    """
    NO_CONFLICTS = ("Conflicted", False, "NoConflicts")
    """The listener conflicts with no other listener."""
    HOST_CONFLICT = ("Conflicted", True, "HostConflict")
    """Another HostedAPIServer owns a hostname, the address or the Service port of the object. The
    message names the owner. Everything else of the object is served.
    """
    PROTOCOL_CONFLICT = ("Conflicted", True, "ProtocolConflict")
    """A listener of the Gateway, or of an earlier ListenerSet, has the port with an incompatible
    protocol.
    """
    PROTOCOL_CONFLICT_REFUSED = ("Accepted", False, "ProtocolConflict")
    """The listener is not accepted because of a protocol conflict on its port."""
    PROTOCOL_CONFLICT_UNSERVED = ("Programmed", False, "ProtocolConflict")
    """The listener is not served because of a protocol conflict on its port."""
    HOSTNAME_CONFLICT = ("Conflicted", True, "HostnameConflict")
    """A listener of the Gateway, or of an earlier ListenerSet, has the same port and hostname."""
    HOSTNAME_CONFLICT_REFUSED = ("Accepted", False, "HostnameConflict")
    """The listener is not accepted because of a hostname conflict, or an older route of another
    kind has the route's hostnames.
    """
    HOSTNAME_CONFLICT_UNSERVED = ("Programmed", False, "HostnameConflict")
    """The listener is not served because of a hostname conflict."""
    RESOLVED = ("ResolvedRefs", True, "ResolvedRefs")
    """All references of the object are valid. The message of a route names Services without ready
    endpoints, and ports that no EndpointSlice has, of backends, mirrors and ExternalAuth. They are
    named after 5 s, and at most once a minute each.
    """
    INVALID_CERTIFICATE_REF = ("ResolvedRefs", False, "InvalidCertificateRef")
    """A reference of `certificateRefs` names no Secret, or the Secret has no valid certificate and
    key.
    """
    INVALID_LISTENER_FILTER = ("Accepted", False, "InvalidListenerFilter")
    """A filter of the listener has an invalid value. The message names it."""
    INVALID_LISTENER_FILTER_REF = ("ResolvedRefs", False, "InvalidListenerFilterRef")
    """A filter of the listener refers to an authorization server that does not exist or cannot be
    used. All requests to the listener are answered 500, because they cannot be checked.
    """
    CERTIFICATE_EXPIRED = (f"{_GATEHOUSE}CertificateValid", False, "Expired")
    """A certificate of the listener, or of the Gateway towards backends, has expired. It is
    presented all the same. Or all CA certificates of a ConfigMap or Secret have expired, so that
    clients of the listener, or the servers that the object names, are rejected.
    """
    CERTIFICATE_EARLY = (f"{_GATEHOUSE}CertificateValid", False, "NotYetValid")
    """A certificate of the listener, of the Gateway towards backends, is not valid yet, or those of
    a CA are not.
    """
    CERTIFICATE_EXPIRES = (f"{_GATEHOUSE}CertificateValid", True, "ExpiresSoon")
    """A certificate expires within 14 days, or is in the last fifth of its validity if that is
    shorter. The message counts those of several CA certificates in one object.
    """
    CERTIFICATE_SOME_EXPIRED = (f"{_GATEHOUSE}CertificateValid", True, "SomeExpired")
    """Some of several CA certificates in one object have expired, and others are valid."""
    INVALID_CA_REF = ("ResolvedRefs", False, "InvalidCACertificateRef")
    """A reference to CA certificates names no object, or the object has no valid certificate."""
    INVALID_CA_KIND = ("ResolvedRefs", False, "InvalidCACertificateKind")
    """A reference to CA certificates has an unsupported kind."""
    NO_VALID_CA = ("Accepted", False, "NoValidCACertificate")
    """None of the references to CA certificates is valid. Connections that need them are rejected.
    """
    POLICY_INVALID = ("Accepted", False, "Invalid")
    """A policy, filter, XBackend or HostedAPIServer has an invalid or unsupported field. The
    message names it.
    """
    POLICY_CONFLICTED = ("Accepted", False, "Conflicted")
    """An older policy has the same field for the same target, or another HostedAPIServer owns all
    hostnames and the address, or the Service port, of the object.
    """
    POLICY_TARGET_NOT_FOUND = ("Accepted", False, "TargetNotFound")
    """The target of the policy does not exist."""
    NGINX_PROXY_NOT_SET = ("Accepted", False, "NginxProxyConfigNotSet")
    """An ObservabilityPolicy has no effect because no trace exporter is configured."""
    POLICY_KIND_NOT_SERVED = ("Accepted", False, "UnsupportedKind")
    """No data plane serves policies of this kind. The message says what is missing. The target is
    served without the policy.
    """
    CLIENT_SETTINGS_AFFECTED = (f"{_NGINX}ClientSettingsPolicyAffected", True, "PolicyAffected")
    """A ClientSettingsPolicy applies to the object."""
    PROXY_SETTINGS_AFFECTED = (f"{_NGINX}ProxySettingsPolicyAffected", True, "PolicyAffected")
    """A ProxySettingsPolicy applies to the object."""
    RATE_LIMIT_AFFECTED = (f"{_NGINX}RateLimitPolicyAffected", True, "PolicyAffected")
    """A RateLimitPolicy applies to the object."""
    TRAFFIC_AFFECTED = (f"{_GATEHOUSE}TrafficPolicyAffected", True, "PolicyAffected")
    """A TrafficPolicy applies to the object."""
    SECURITY_AFFECTED = (f"{_GATEHOUSE}SecurityPolicyAffected", True, "PolicyAffected")
    """A SecurityPolicy applies to the object."""
    SNIPPETS_AFFECTED = (f"{_NGINX}SnippetsPolicyAffected", True, "PolicyAffected")
    """A SnippetsPolicy applies to the object."""
    OBSERVABILITY_AFFECTED = (f"{_NGINX}ObservabilityPolicyAffected", True, "PolicyAffected")
    """An ObservabilityPolicy applies to the object."""
    TELEMETRY_AFFECTED = (
        "gateway.networking.x-k8s.io/XTelemetryPolicyAffected",
        True,
        "PolicyAffected",
    )
    """An XTelemetryPolicy applies to the Gateway."""
    INVALID_ROUTE_KINDS = ("ResolvedRefs", False, "InvalidRouteKinds")
    """`allowedRoutes.kinds` has a kind that the protocol of the listener does not support."""
    REF_NOT_PERMITTED = ("ResolvedRefs", False, "RefNotPermitted")
    """A reference to another namespace has no ReferenceGrant there."""
    NO_MATCHING_PARENT = ("Accepted", False, "NoMatchingParent")
    """The parent does not exist or is not managed by Gatehouse, or `sectionName` and `port` match
    no listener.
    """
    OVERLAPPING_TLS = ("OverlappingTLSConfig", True, "OverlappingHostnames")
    """Another TLS listener of the port has an overlapping hostname. A client may reuse a connection
    for the wrong listener, and gets 421 then.
    """
    NOT_ALLOWED = ("Accepted", False, "NotAllowedByListeners")
    """`allowedRoutes` of the listeners does not allow the namespace or kind."""
    TOO_MANY_ROUTES = ("Accepted", False, "TooManyRoutes")
    """The namespace has more routes than `routesPerNamespace` of the resource limits permits, or
    the Gateway more than `routesPerGateway`. The oldest ones of each namespace are served.
    """
    NO_MATCHING_HOSTNAME = ("Accepted", False, "NoMatchingListenerHostname")
    """The object and the listeners have no common hostname."""
    UNSUPPORTED_VALUE = ("Accepted", False, "UnsupportedValue")
    """A field has a value that is invalid or that this proxy cannot serve. Nothing of the object is
    served.
    """
    PARTIALLY_INVALID = ("PartiallyInvalid", True, "UnsupportedValue")
    """Some rules or settings are invalid or cannot be served by this proxy. The message names them,
    and the others are served.
    """
    INVALID_KIND = ("ResolvedRefs", False, "InvalidKind")
    """A reference has an unsupported kind. Requests to this backend are answered 500, and a
    collector gets no span.
    """
    BACKEND_NOT_FOUND = ("ResolvedRefs", False, "BackendNotFound")
    """The Service or its port, or the XBackend, does not exist. Requests to this backend are
    answered 500, and a collector gets no span.
    """
    UNSUPPORTED_BACKEND_PROTOCOL = ("ResolvedRefs", False, "UnsupportedProtocol")
    """`appProtocol` of the Service port, or `protocol` of the XBackend, is not supported by the
    kind of the route.
    """
    EXTERNAL_NAME_REFUSED = ("ResolvedRefs", False, "ExternalNameNotAllowed")
    """The name of an ExternalName Service, or the hostname of an XBackend, is not allowed. Requests
    to this backend are answered 500.
    """
    UNSUPPORTED_BACKEND = ("ResolvedRefs", False, "UnsupportedValue")
    """No name server is configured for an ExternalName Service or the hostname of an XBackend, or
    the XBackend is invalid. Requests to this backend are answered 500.
    """
    FQDN_ENDPOINTS = ("ResolvedRefs", False, "UnsupportedAddressType")
    """The EndpointSlices of a Service have the `addressType` `FQDN`. Requests to this backend are
    answered 500, and connections are closed.
    """
    POOL_ROUTE_NOT_ACCEPTED = ("Accepted", False, "HTTPRouteNotAccepted")
    """No route that refers to the InferencePool is accepted by the Gateway."""
    INVALID_PICKER = ("ResolvedRefs", False, "InvalidExtensionRef")
    """`endpointPickerRef` of an InferencePool names no Service or port, or one that cannot be used.
    Requests are answered 500; with the failure mode `FailOpen` the proxy chooses the Pod.
    """
    INVALID_FILTER = ("ResolvedRefs", False, "InvalidFilter")
    """A filter of `gateway.nginx.org` is missing or invalid, or the BackendTLSPolicy of an
    authorization server or a SecurityPolicy is. Requests are answered 500.
    """


OPTIONAL_CONDITIONS = frozenset(
    {
        "AddressesAssigned",
        "DefaultGateway",
        "PartiallyInvalid",
        "SupportedVersion",
        "InsecureFrontendValidationMode",
        "OverlappingTLSConfig",
        Reason.CERTIFICATE_EXPIRED.condition_type,
    }
    | {reason.condition_type for reason in Reason if reason.reason == "PolicyAffected"}
)
"""Condition types that are present only when a finding has them."""


class Finding(msgspec.Struct, frozen=True):
    """A reason and a message that names object and field."""

    reason: Reason
    message: str


ALL_RESOLVED = Finding(Reason.RESOLVED, "all references are resolved")


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
    def reason(self) -> ReasonBase:
        """Condition type, status and reason."""

    @property
    def message(self) -> str:
        """Message that names object and field."""


def condition(finding: AnyFinding, generation: int) -> Condition:
    """Return the condition for ``finding`` about an object's ``generation``."""
    return _condition(finding.reason, finding.message, generation)


def _condition(reason: ReasonBase, message: str, generation: int) -> Condition:
    status = "True" if reason.holds else "False"
    # 32,768 is the longest message of a Kubernetes condition.
    return Condition(reason.condition_type, status, reason.reason, message[:32768], generation)


def fold_findings(
    findings: Sequence[AnyFinding], defaults: Sequence[AnyFinding], generation: int
) -> tuple[Condition, ...]:
    """Fold findings into one condition per type; types without a finding get their default.

    The first finding of a type sets status and reason. The messages of all findings with that
    reason are joined.
    """
    result: dict[str, tuple[ReasonBase, list[str]]] = {}
    for finding in findings:
        reason, messages = result.setdefault(finding.reason.condition_type, (finding.reason, []))
        if reason is finding.reason and finding.message not in messages:
            messages.append(finding.message)
    for default in defaults:
        result.setdefault(default.reason.condition_type, (default.reason, [default.message]))
    return tuple(
        _condition(reason, "; ".join(messages), generation)
        for _, (reason, messages) in sorted(result.items())
    )
