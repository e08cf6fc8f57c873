"""XBackend of ``gateway.networking.x-k8s.io/v1alpha1`` (GEP-4894)."""

from __future__ import annotations

import msgspec

from gatehouse.apis.gateway import ObjectReference
from gatehouse.apis.meta import KubernetesObject, Meta, View
from gatehouse.apis.policies import BackendValidation
from gatehouse.apis.routes import SessionPersistence

EXTERNAL_HOSTNAME, ENDPOINT_SELECTOR = "ExternalHostname", "EndpointSelector"
"""Types of backends."""

NO_TLS, SERVER_ONLY, CLIENT_AND_SERVER = "None", "ServerOnly", "ClientAndServer"
"""Modes of TLS."""


class IdentifiedMeta(Meta, frozen=True):
    """``metadata`` with the identity of an object, which a new object of the name lacks."""

    uid: str = ""


class BackendPortSpec(View, frozen=True):
    """The port of a host or of Pods."""

    number: int = 0


class EndpointSelectorSpec(View, frozen=True):
    """Labels of the Pods in the namespace of the backend."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)


class ExternalHostnameSpec(View, frozen=True):
    """A host outside the cluster."""

    hostname: str = ""


class BackendTlsSpec(View, frozen=True):
    """TLS to the backend."""

    mode: str = NO_TLS
    client_certificate_ref: ObjectReference | None = None
    validation: BackendValidation | None = None


class BackendSpec(View, frozen=True):
    """``spec`` of an XBackend. ``type`` says which of the other fields has the endpoints."""

    type: str = ""
    port: BackendPortSpec = BackendPortSpec()
    endpoint_selector: EndpointSelectorSpec = EndpointSelectorSpec()
    external_hostname: ExternalHostnameSpec = ExternalHostnameSpec()
    protocol: str = ""
    session_persistence: SessionPersistence | None = None
    tls: BackendTlsSpec = BackendTlsSpec()


class XBackend(KubernetesObject, frozen=True):
    """An XBackend."""

    metadata: IdentifiedMeta
    spec: BackendSpec = BackendSpec()
