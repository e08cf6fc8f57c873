"""ExternalLoadBalancer of ``gatehouse.dev/v1alpha1``, with the defaults of its CRD."""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.apis.meta import KubernetesObject, View
from gatehouse.apis.selectors import LabelSelector

_GROUP = "gatehouse.dev"

NLK_NAMESPACE = "nlk"
"""Default namespace of the ConfigMaps of nginx-loadbalancer-kubernetes."""

Treatment = Literal["Keep", "Drain", "Remove"]


class HostSpec(View, frozen=True):
    """An NGINX Plus host, or an external machine whose agent runs NGINX or Envoy."""

    url: str = ""
    """URL of its API without a version: ``https://10.1.1.4:9000/api``."""
    name: str = ""
    """Name of a machine; the same as in its agent's certificate."""


class MachineListener(View, frozen=True):
    """A port of a machine, or one hostname on it, and the Service behind it."""

    port: int
    protocol: Literal["HTTP", "TCP", "UDP", "TLS"]
    upstream: str
    """Upstream in the ``http`` context for HTTP, otherwise in the ``stream`` context."""
    hostname: str = ""
    """Requested hostname for HTTP and TLS. ``*.`` matches all subdomains; empty matches all."""


class LocalSecretRef(View, frozen=True):
    """A Secret in the object's own namespace."""

    name: str
    key: str = ""
    """Key in the Secret; empty for the default key."""


class HostTlsSpec(View, frozen=True):
    """TLS settings of connections to hosts."""

    mode: Literal["Verify", "SkipVerify"] = "Verify"
    ca_certificate_ref: LocalSecretRef | None = None
    """CA certificates; None for those of the system."""
    client_certificate_ref: LocalSecretRef | None = None
    server_name: str = ""
    """Expected name in hosts' certificates instead of the name in the URL."""


class ServiceAnnotation(View, frozen=True):
    """A required annotation of Services."""

    name: str
    value: str | None = None
    """Required value; None for any."""


class ServiceSelection(View, frozen=True):
    """Selection of the Services that the hosts follow."""

    namespaces: tuple[str, ...] = ()
    """Namespaces; empty for the object's own, ``*`` for all."""
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    annotation: ServiceAnnotation | None = None
    port_prefix: str = "nlk-"
    port_names: Literal["Prefix", "Context"] = "Prefix"
    """Ports that are upstreams: those with ``port_prefix``, or those named ``http-<upstream>`` and
    ``stream-<upstream>``."""
    load_balancer_servers: Literal["NodePort", "Ingress"] = "NodePort"
    """Endpoints of Services of type LoadBalancer: node ports or their ingress."""


class Nodes(View, frozen=True):
    """Selection of the Nodes that are servers of NodePort Services."""

    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    control_plane: bool = False
    not_ready_policy: Treatment = "Remove"
    unschedulable_policy: Treatment = "Keep"
    only_with_endpoints: bool = False


class ServerParametersSpec(View, frozen=True):
    """Parameters of every server; None for NGINX's default."""

    weight: int | None = None
    max_conns: int | None = None
    max_fails: int | None = None
    fail_timeout: str | None = None
    slow_start: str | None = None


class LoadBalancerSpec(View, frozen=True):
    """``spec`` of an ExternalLoadBalancer."""

    hosts: tuple[HostSpec, ...] = ()
    type: str = "NginxPlus"
    """Type of the hosts. ``Nginx`` and ``Envoy`` are machines whose whole configuration is
    owned."""
    listeners: tuple[MachineListener, ...] = ()
    """Settings of machines."""
    bind_address: str = ""
    """Address on which machines listen; empty for all addresses."""
    tls: HostTlsSpec = HostTlsSpec()
    authorization_secret_ref: LocalSecretRef | None = None
    """Secret with the value of the header ``Authorization``."""
    services: ServiceSelection = msgspec.field(default_factory=ServiceSelection)
    nodes: Nodes = msgspec.field(default_factory=Nodes)
    parameters: ServerParametersSpec = ServerParametersSpec()
    drain_seconds: int = 0
    """Drain time of a server before it is removed."""
    when_empty: Literal["Keep", "Remove"] = "Keep"
    """Action for an upstream whose Service exists but has no endpoints."""
    deletion_policy: Literal["Retain", "Delete"] = "Delete"
    resync_seconds: int = 300
    timeout_seconds: int = 10


class ExternalLoadBalancer(KubernetesObject, frozen=True):
    """External load balancers that follow the cluster's Services."""

    spec: LoadBalancerSpec = msgspec.field(default_factory=LoadBalancerSpec)
