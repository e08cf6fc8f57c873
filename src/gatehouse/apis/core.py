"""Core kinds and EndpointSlices, as far as routing needs them."""

from __future__ import annotations

import msgspec

from gatehouse.apis.meta import Resource, View


class Namespace(Resource, frozen=True):
    """Only its labels matter."""


class Ingress(View, frozen=True):
    """An address that a load balancer gave to a Service."""

    ip: str = ""
    hostname: str = ""


class LoadBalancer(View, frozen=True):
    """``status.loadBalancer`` of a Service."""

    ingress: tuple[Ingress, ...] = ()


class ServicePort(View, frozen=True):
    """One port of a Service; ``name`` is how EndpointSlices refer to it."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""


class ServiceSpec(View, frozen=True):
    """``spec`` of a Service."""

    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    """``None`` in so many letters for a headless Service."""


class ServiceStatus(View, frozen=True):
    """``status`` of a Service."""

    load_balancer: LoadBalancer = LoadBalancer()


class Service(Resource, frozen=True):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class EndpointPort(View, frozen=True):
    """One port of all endpoints of a slice; no number: every port (which nobody can dial)."""

    name: str = ""
    port: int | None = None
    protocol: str = "TCP"


class EndpointConditions(View, frozen=True):
    """Conditions of an endpoint; unknown readiness counts as ready (EndpointSlice API)."""

    ready: bool = True


class Endpoint(View, frozen=True):
    """One endpoint."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(Resource, frozen=True):
    """Some of a Service's endpoints, which the label ``kubernetes.io/service-name`` names."""

    address_type: str = "IPv4"
    ports: tuple[EndpointPort, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()


class Secret(Resource, frozen=True):
    """A Secret; its data is base64 and never shown."""

    type: str = "Opaque"
    data: dict[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, [redacted])"

    __str__ = __repr__


class ConfigMap(Resource, frozen=True):
    """A ConfigMap."""

    data: dict[str, str] = msgspec.field(default_factory=dict)
