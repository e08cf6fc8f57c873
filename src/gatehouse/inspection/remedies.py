"""Instructions for conditions that are not good: one sentence for each reason, and a document."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.frontends.gateway_api.findings import Reason

_CONDITIONS = "docs/reference/conditions.md"
_CAUSES = "docs/tasks/explain-requests.md#first-lines-and-their-remedies"
_TROUBLESHOOTING = "docs/tasks/troubleshooting.md"
_LOAD_BALANCERS = "docs/tasks/external-load-balancers.md"
_KUBE_APISERVERS = "docs/tasks/kube-apiservers.md"


class Remedy(msgspec.Struct, frozen=True):
    """Instruction for a problem."""

    sentence: str
    document: str = _CONDITIONS
    """Path of a document in the project, possibly with an anchor."""


NO_ENDPOINTS = Remedy(
    "Make the Pods of the Service ready. With 0 of 0 endpoints, correct its selector.", _CAUSES
)
NO_PORT = Remedy(
    "Give a port of the EndpointSlice, or targetPort of the Service, the name in the message.",
    _CAUSES,
)
NO_CONTROLLER = Remedy(
    "Use a GatewayClass of Gatehouse, or check that the controller runs.", _TROUBLESHOOTING
)
NO_PARENT = Remedy(
    "Correct parentRefs, or allow the route in allowedRoutes of the listener.", _CAUSES
)
POD_NOT_READY = Remedy(
    "Read the log of the Pod and the condition Programmed of its Gateway.", _TROUBLESHOOTING
)
_CERTIFICATE = Reason.CERTIFICATE_EXPIRED.condition_type
_OTHER = Remedy("Read the message, which names the object and the field.")

_REMEDIES: Mapping[tuple[str, str], Remedy] = {
    (kind, reason): Remedy(sentence, document)
    for document, entries in {
        _CONDITIONS: {
            ("Accepted", "Accepted"): "Remove the settings that this proxy does not support, or "
            "use a class that supports them.",
            ("Accepted", "Conflicted"): "Remove the conflicting fields, or delete the older "
            "object that the message names.",
            ("Accepted", "HostnameConflict"): "Give one of the two another hostname or port.",
            ("Accepted", "HTTPRouteNotAccepted"): "Correct the routes that refer to the "
            "InferencePool: their conditions say why the Gateway does not accept them.",
            ("Accepted", "Invalid"): "Correct the field that the message names.",
            ("Accepted", "InvalidHost"): "Correct spec.hosts.",
            ("Accepted", "InvalidListenerFilter"): "Correct the filter of the listener that the "
            "message names.",
            ("Accepted", "InvalidParameters"): "Create the parameters object, or correct the "
            "fields that the message names.",
            ("Accepted", "ListenersNotValid"): "Correct the listeners that the message names.",
            ("Accepted", "NginxProxyConfigNotSet"): "Configure a trace exporter in the NginxProxy "
            "of the class.",
            ("Accepted", "NoMatchingListenerHostname"): "Give the route a hostname of the "
            "listener, or the listener one of the route.",
            ("Accepted", "NoMatchingParent"): NO_PARENT.sentence,
            ("Accepted", "NoValidCACertificate"): "Create the object with a valid CA certificate.",
            ("Accepted", "NotAllowed"): "Allow the namespace in spec.allowedListeners of the "
            "Gateway.",
            ("Accepted", "NotAllowedByListeners"): "Allow the namespace and kind in allowedRoutes "
            "of the listener.",
            ("Accepted", "ProtocolConflict"): "Give one of the two listeners another port.",
            ("Accepted", "TargetNotFound"): "Create the target, or correct targetRefs.",
            ("Accepted", "TooManyRoutes"): "Delete routes of the namespace, or let an "
            "administrator raise the ceiling that the message names.",
            (
                "Accepted",
                "Unsupported",
            ): "Delete the XMesh, and create one that names the controller of a service mesh.",
            ("Accepted", "UnsupportedAddress"): "Use an IP address in spec.addresses.",
            ("Accepted", "UnsupportedField"): "Remove the field that the message names.",
            ("Accepted", "UnsupportedKind"): "Use a class whose proxy serves this policy, or "
            "delete the policy.",
            ("Accepted", "UnsupportedProtocol"): "Use a protocol that the proxy of the class "
            "supports.",
            ("Accepted", "UnsupportedValue"): "Correct the value that the message names.",
            ("Accepted", "UnsupportedVersion"): "Install the CRDs of the supported version of "
            "Gateway API.",
            ("Conflicted", "HostConflict"): "Remove the hostname here or from the owner that the "
            "message names.",
            ("Conflicted", "HostnameConflict"): "Give one of the two listeners another hostname "
            "or port.",
            ("Conflicted", "ProtocolConflict"): "Give one of the two listeners another port.",
            ("InsecureFrontendValidationMode", "ConfigurationChanged"): "Set the mode of client "
            "certificate validation to AllowValidOnly if all clients have certificates.",
            ("OverlappingTLSConfig", "OverlappingHostnames"): "Use one listener for the "
            "hostnames, or certificates without common names.",
            ("PartiallyInvalid", "UnsupportedValue"): "Correct the rules that the message names.",
            ("AddressesAssigned", "NotAssigned"): "Request an address that the Service can have; "
            "the cluster IP of an existing Service does not change.",
            ("AddressesAssigned", "PartiallyAssigned"): "Remove or change the requests for "
            "addresses that the message names.",
            ("Programmed", "AddressNotAssigned"): "Request at least one address that the Service "
            "can have.",
            ("Programmed", "AddressNotUsable"): "Request an address that the load balancer can "
            "assign.",
            ("Programmed", "HostnameConflict"): "Give one of the two listeners another hostname "
            "or port.",
            ("Programmed", "Invalid"): "Correct the part that the message names. The previous "
            "configuration stays in use.",
            ("Programmed", "ListenersNotValid"): "Correct the listeners, whose conditions have "
            "the cause.",
            ("Programmed", "NoResources"): "Raise the quota of the namespace.",
            ("Programmed", "NotAllowed"): "Allow the namespace in spec.allowedListeners of the "
            "Gateway.",
            ("Programmed", "Pending"): "Wait for the data plane. If it stays so, check what the "
            "message names.",
            ("Programmed", "Programmed"): "Correct the parts that the proxy rejected.",
            ("Programmed", "ProtocolConflict"): "Give one of the two listeners another port.",
            (
                _CERTIFICATE,
                "Expired",
            ): "Renew the certificate in the object that the message names.",
            (
                _CERTIFICATE,
                "ExpiresSoon",
            ): "Renew the certificate in the object that the message names, "
            "and check why the program that renews it did not.",
            (_CERTIFICATE, "SomeExpired"): "Remove the expired CA certificates, if no peer uses "
            "certificates issued by them.",
            (_CERTIFICATE, "NotYetValid"): "Issue a certificate that is valid "
            "now, and check the clock of the program that issues it.",
            ("ResolvedRefs", "BackendNotFound"): "Create the Service, or correct name, namespace "
            "and port of the backendRef.",
            ("ResolvedRefs", "ExternalNameNotAllowed"): "Let an administrator allow the name by "
            "--allow-external-name, or use another backend.",
            (
                "ResolvedRefs",
                "InvalidCACertificateKind",
            ): "Reference a ConfigMap, a Secret "
            "or, where the cluster serves it, a ClusterTrustBundle.",
            ("ResolvedRefs", "InvalidCACertificateRef"): "Create the object with a valid CA "
            "certificate in the entry that the message names.",
            ("ResolvedRefs", "InvalidCertificateRef"): "Create the Secret with a valid "
            "certificate and key, or correct certificateRefs.",
            ("ResolvedRefs", "InvalidClientCertificateRef"): "Create the Secret of type "
            "kubernetes.io/tls, or correct the reference.",
            (
                "ResolvedRefs",
                "InvalidExtensionRef",
            ): "Create the Service of the endpoint picker, or "
            "correct endpointPickerRef of the InferencePool.",
            ("ResolvedRefs", "InvalidFilter"): "Create or correct the filter that the message "
            "names.",
            ("ResolvedRefs", "InvalidKind"): "Use a supported kind in the reference.",
            ("ResolvedRefs", "InvalidListenerFilterRef"): "Create the authorization server of the "
            "listener, or correct backendRef in its filter.",
            ("ResolvedRefs", "InvalidRouteKinds"): "Remove kinds from allowedRoutes that the "
            "protocol does not support.",
            ("ResolvedRefs", "RefNotPermitted"): "Create a ReferenceGrant in the namespace of "
            "the referenced object.",
            ("ResolvedRefs", "UnsupportedAddressType"): "Create EndpointSlices with IP addresses, "
            "or a Service of type ExternalName.",
            ("ResolvedRefs", "UnsupportedProtocol"): "Correct appProtocol of the Service port.",
            ("ResolvedRefs", "UnsupportedValue"): "Configure a name server in the parameters of "
            "the class or Gateway.",
            ("SupportedVersion", "UnsupportedVersion"): "Install the CRDs of the supported "
            "version of Gateway API.",
        },
        _KUBE_APISERVERS: {
            ("Accepted", "NoHost"): "Use hostnames that no other UpstreamCluster has.",
            ("Accepted", "NoMatchingGateway"): "Add a listener for kube-apiservers to a managed "
            "Gateway.",
            ("CertificateValid", "Expired"): "Renew the certificate.",
            ("CertificateValid", "ExpiresSoon"): "Renew the certificate.",
            (
                "CertificateValid",
                "SomeExpired",
            ): "Remove the expired CA certificates, if no peer uses certificates issued by them.",
            ("CertificateValid", "HostnameMismatch"): "Issue a certificate for all hostnames.",
            ("CertificateValid", "NotYetValid"): "Check the clock and the start of validity.",
            ("KubeGatewayCompatible", "SemanticsDiffer"): "Check whether the part that the "
            "message names means what you expect.",
            ("Programmed", "CertificateNotFound"): "Give the object or the listener a valid "
            "certificate.",
            ("ResolvedRefs", "InvalidCredentials"): "Create the Secret with valid credentials.",
            ("ServersReady", "ServersNotReady"): "Check the servers that the message names.",
        },
        _LOAD_BALANCERS: {
            **dict.fromkeys(
                (
                    ("Accepted", "CertificateExpired"),
                    ("Accepted", "CertificateExpiresSoon"),
                    ("Accepted", "CertificateNotYetValid"),
                ),
                "Renew the certificate.",
            ),
            ("Accepted", "CertificateSomeExpired"): "Remove the expired CA certificates, if no "
            "host uses them.",
            ("Accepted", "InvalidPort"): "Correct the upstream name of the Service port.",
            ("Accepted", "InvalidSecretRef"): "Create the Secret with valid content.",
            ("Accepted", "ListenerConflict"): "Correct the listener of the machine.",
            ("Accepted", "NoListener"): "Add a listener that uses the upstream.",
            ("Accepted", "NoServers"): "Make an endpoint, a Node or a load balancer address "
            "available.",
            ("Accepted", "TLSVerificationDisabled"): "Set spec.tls.mode to verify certificates.",
            ("Accepted", "UnsupportedType"): "Use a supported value of spec.type.",
            ("Accepted", "UpstreamConflict"): "Give one of the two Services another upstream name.",
            ("Accepted", "UpstreamNotFound"): "Create a Service port with the upstream name and "
            "protocol.",
            ("Programmed", "HostSyncFailed"): "Check the hosts that the message names.",
            ("Programmed", "NotAccepted"): "Correct what the condition Accepted names.",
        },
    }.items()
    for (kind, reason), sentence in entries.items()
}


def remedy_for(condition_type: str, reason: str) -> Remedy:
    """Return the instruction for a condition that is not good."""
    return _REMEDIES.get((condition_type, reason), _OTHER)
