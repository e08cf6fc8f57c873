"""Inputs of the front end: index buckets, and keys of values that the controller sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gatehouse.apis import external_services
from gatehouse.apis.external_load_balancers import NLK_NAMESPACE
from gatehouse.incremental.query import Key

NLK_NAME = "nlk-config"
NLK_CONFIG_KEY: Key = ("ConfigMap", NLK_NAMESPACE, NLK_NAME)
"""ConfigMap of nginx-loadbalancer-kubernetes (nlk).

The Helm chart of nlk 1.x puts the name of the release before its name.
"""

NLK_SERVICES = "nginx-ingress"
"""Namespace whose Services nlk 0.x watches."""

LOAD_BALANCERS: Key = ("@load-balancers",)
NODES_KEY: Key = ("@nodes",)
SERVICES_KEY: Key = ("@services",)

_SERVICE_NAME = "kubernetes.io/service-name"


def owned(source: Key) -> Key:
    """Return the key of the owned upstreams on a load balancer's hosts.

    Its value maps :class:`gatehouse.dataplane.upstream_name.UpstreamName` to the Service that last
    claimed it. The controller stores it: only these upstreams are ever emptied.
    """
    return ("Owned", *source)


def source_name(source: Key) -> str:
    """Return the name of a source, ``Kind namespace/name``, for messages and transports."""
    return f"{source[0]} {source[1]}/{source[2]}"


def relevant(kind: str, namespace: str, name: str, nlk_namespace: str = NLK_NAMESPACE) -> bool:
    """Return whether an object can matter here; of ConfigMaps only those of nlk can.

    They are in one namespace: the author of such a ConfigMap controls load balancers.
    """
    return kind != "ConfigMap" or (
        namespace == nlk_namespace and f"-{name}".endswith(f"-{NLK_NAME}")
    )


def balancer_buckets(_: Any) -> Iterable[Key]:
    """Yield the bucket of all objects that may request a load balancer."""
    yield LOAD_BALANCERS


def node_buckets(_: Any) -> Iterable[Key]:
    """Yield the bucket of all Nodes."""
    yield NODES_KEY


def service_buckets(value: Any) -> Iterable[Key]:
    """Yield the buckets of a Service whose ports may claim upstreams."""
    # Ports without a name cannot claim an upstream; most Services have only such ports.
    if isinstance(value, external_services.ExternalService) and any(
        port.name for port in value.spec.ports
    ):
        yield SERVICES_KEY
        yield (*SERVICES_KEY, value.metadata.namespace)


def slice_buckets(value: Any) -> Iterable[Key]:
    """Yield the bucket of an EndpointSlice: its Service."""
    service = value.metadata.labels.get(_SERVICE_NAME)
    if service:
        yield ("@slices", value.metadata.namespace, service)
