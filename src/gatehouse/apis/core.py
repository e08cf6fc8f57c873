"""Core kinds and EndpointSlices, with the fields that routing needs."""

from __future__ import annotations

import msgspec

from gatehouse.apis.meta import KubernetesObject, View


class Namespace(KubernetesObject, frozen=True):
    """A Namespace, of which only the labels are read."""


class Ingress(View, frozen=True):
    """An address that a load balancer assigned to a Service."""

    ip: str = ""
    hostname: str = ""


class LoadBalancerStatus(View, frozen=True):
    """``status.loadBalancer`` of a Service."""

    ingress: tuple[Ingress, ...] = ()


class ServicePort(View, frozen=True):
    """A port of a Service. EndpointSlices refer to it by ``name``."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""


class ServiceSpec(View, frozen=True):
    """``spec`` of a Service."""

    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    """The string ``None`` for a headless Service."""
    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")
    """``cluster_ip``, and that of the other IP family if there is one."""
    type: str = "ClusterIP"
    external_name: str = ""
    """DNS name of a Service of type ExternalName."""


class ServiceStatus(View, frozen=True):
    """``status`` of a Service."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(KubernetesObject, frozen=True):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class EndpointPort(View, frozen=True):
    """A port of all endpoints of a slice. Without a number it means all ports, to which nothing can
    connect."""

    name: str = ""
    port: int | None = None
    protocol: str = "TCP"


class EndpointConditions(View, frozen=True):
    """Conditions of an endpoint. Unknown readiness counts as ready (EndpointSlice API)."""

    ready: bool = True
    serving: bool = False
    terminating: bool = False


class SliceEndpoint(View, frozen=True):
    """One endpoint."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(KubernetesObject, frozen=True):
    """Endpoints of the Service in the label ``kubernetes.io/service-name``."""

    address_type: str = "IPv4"
    ports: tuple[EndpointPort, ...] = ()
    endpoints: tuple[SliceEndpoint, ...] = ()

    @property
    def has_names(self) -> bool:
        """True if its addresses are DNS names (``FQDN``), which have no defined semantics."""
        return self.address_type not in ("IPv4", "IPv6")


class Secret(KubernetesObject, frozen=True):
    """A Secret. Its data is base64 and is never logged."""

    type: str = "Opaque"
    data: dict[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, [redacted])"

    __str__ = __repr__


class ClusterTrustBundleSpec(View, frozen=True):
    """Spec of a ClusterTrustBundle."""

    trust_bundle: str = ""
    """PEM certificates."""


class ClusterTrustBundle(KubernetesObject, frozen=True):
    """A ClusterTrustBundle: CA certificates that every namespace may read."""

    spec: ClusterTrustBundleSpec


class ConfigMap(KubernetesObject, frozen=True):
    """A ConfigMap."""

    data: dict[str, str] = msgspec.field(default_factory=dict)
