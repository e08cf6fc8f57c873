"""HostedAPIServer of ``gatehouse.dev/v1alpha1``, with the defaults of its CRD."""

from __future__ import annotations

import msgspec

from gatehouse.apis.meta import KubernetesObject, View

_GROUP = "gatehouse.dev"


class HostedParentRef(View, frozen=True):
    """A Gateway, or one listener of it."""

    name: str
    namespace: str = ""
    """Namespace; empty for the object's own."""
    section_name: str = ""


class ApiServerService(View, frozen=True):
    """The Service in front of the kube-apiserver's Pods, in the object's namespace."""

    name: str
    port: int = 443


class Dns(View, frozen=True):
    """DNS settings of the hostnames."""

    publish: bool = False
    """Create a DNSEndpoint for external-dns."""
    ttl_seconds: int = 60


class HostedAPIServerSpec(View, frozen=True):
    """``spec`` of a HostedAPIServer."""

    service: ApiServerService
    parent_refs: tuple[HostedParentRef, ...] = ()
    hosts: tuple[str, ...] = ()
    advertise_address: str = ""
    """Address to which clients inside the hosted cluster connect, by a node proxy. Empty: none."""
    advertise_port: int = 443
    allowed_sources: tuple[str, ...] = ()
    """Allowed client networks; empty for all."""
    dns: Dns = msgspec.field(default_factory=Dns)


class HostedAPIServer(KubernetesObject, frozen=True):
    """The kube-apiserver of a hosted cluster."""

    spec: HostedAPIServerSpec
