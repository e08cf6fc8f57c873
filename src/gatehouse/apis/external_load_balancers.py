"""ExternalLoadBalancer of ``gatehouse.dev/v1alpha1``, with the defaults of its definition."""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.apis.meta import Resource, View
from gatehouse.apis.selectors import LabelSelector

GROUP = "gatehouse.dev"

Treatment = Literal["Keep", "Drain", "Remove"]


class Host(View, frozen=True):
    """One NGINX Plus, or one machine where an agent runs NGINX or Envoy."""

    url: str = ""
    """Of its API, without a version: ``https://10.1.1.4:9000/api``."""
    name: str = ""
    """Of a machine; its agent's certificate says the same."""


class Listener(View, frozen=True):
    """A port of a machine, or one name on it, and what answers."""

    port: int
    protocol: Literal["HTTP", "TCP", "UDP", "TLS"]
    upstream: str
    """Of the ``http`` context for HTTP, of the ``stream`` context for all else."""
    hostname: str = ""
    """Of HTTP and TLS: the name asked for; ``*.`` before it covers all below; empty: any."""


class SecretRef(View, frozen=True):
    """A Secret of the object's own namespace."""

    name: str
    key: str = ""
    """Empty: the customary one."""


class Tls(View, frozen=True):
    """How hosts are spoken to over HTTPS."""

    mode: Literal["Verify", "SkipVerify"] = "Verify"
    ca_certificate_ref: SecretRef | None = None
    """None: the authorities that the system trusts."""
    client_certificate_ref: SecretRef | None = None
    server_name: str = ""
    """Expected in hosts' certificates instead of what stands in the URL."""


class ServiceAnnotation(View, frozen=True):
    """An annotation that Services must have."""

    name: str
    value: str | None = None
    """None: any."""


class Services(View, frozen=True):
    """Which Services the hosts follow."""

    namespaces: tuple[str, ...] = ()
    """Empty: the object's own; ``*``: all."""
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    annotation: ServiceAnnotation | None = None
    port_prefix: str = "nlk-"
    load_balancer_servers: Literal["NodePort", "Ingress"] = "NodePort"
    """How a Service of type LoadBalancer is reached: like a NodePort one, or by its ingress."""


class Nodes(View, frozen=True):
    """Which Nodes are servers of NodePort Services."""

    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    control_plane: bool = False
    not_ready_policy: Treatment = "Remove"
    unschedulable_policy: Treatment = "Keep"
    only_with_endpoints: bool = False


class Parameters(View, frozen=True):
    """Of every server; None: NGINX's own default."""

    weight: int | None = None
    max_conns: int | None = None
    max_fails: int | None = None
    fail_timeout: str | None = None
    slow_start: str | None = None


class Spec(View, frozen=True):
    """``spec`` of an ExternalLoadBalancer."""

    hosts: tuple[Host, ...] = ()
    type: str = "NginxPlus"
    """``Nginx`` and ``Envoy``: machines where our agent runs one, which are ours in whole."""
    listeners: tuple[Listener, ...] = ()
    """Of machines."""
    bind_address: str = ""
    """The one address at which machines listen; empty: all of theirs."""
    tls: Tls = Tls()
    authorization_secret_ref: SecretRef | None = None
    """A Secret with the value of the header ``Authorization``."""
    services: Services = msgspec.field(default_factory=Services)
    nodes: Nodes = msgspec.field(default_factory=Nodes)
    parameters: Parameters = Parameters()
    drain_seconds: int = 0
    """How long a server that leaves is drained before it is removed."""
    when_empty: Literal["Keep", "Remove"] = "Keep"
    """What becomes of an upstream whose Service is there, but has nowhere to send traffic."""
    deletion_policy: Literal["Retain", "Delete"] = "Delete"
    """Whether the servers of an upstream stay after its Service is deleted."""
    resync_seconds: int = 300
    timeout_seconds: int = 10


class ExternalLoadBalancer(Resource, frozen=True):
    """Load balancers outside the cluster that follow its Services."""

    spec: Spec = msgspec.field(default_factory=Spec)
