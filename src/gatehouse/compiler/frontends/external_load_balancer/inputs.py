"""Inputs of the front end: index buckets, and keys of values that the controller sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gatehouse.apis import external_services
from gatehouse.incremental.query import Key

NLK_NAMESPACE, NLK_NAME = "nlk", "nlk-config"
NLK_CONFIG_KEY: Key = ("ConfigMap", NLK_NAMESPACE, NLK_NAME)
"""ConfigMap of nginx-loadbalancer-kubernetes."""

NLK_SERVICES = "nginx-ingress"
"""Namespace whose Services nginx-loadbalancer-kubernetes watches."""

LOAD_BALANCERS: Key = ("@load-balancers",)
NODES: Key = ("@nodes",)
SERVICES: Key = ("@services",)

SERVICE_NAME = "kubernetes.io/service-name"


def owned(source: Key) -> Key:
    """Return the key of the owned upstreams on a load balancer's hosts.

    Its value maps :class:`gatehouse.dataplane.upstream_name.UpstreamName` to the Service that last
    claimed it. The controller stores it: only these upstreams are ever emptied.
    """
    return ("Owned", *source)


def name_of(source: Key) -> str:
    """Return the name of a source, ``Kind namespace/name``, for messages and transports."""
    return f"{source[0]} {source[1]}/{source[2]}"


def relevant(kind: str, namespace: str, name: str) -> bool:
    """Return whether an object can matter here; of ConfigMaps only :data:`NLK_CONFIG_KEY` can."""
    return kind != "ConfigMap" or (kind, namespace, name) == NLK_CONFIG_KEY


def balancer_buckets(_: Any) -> Iterable[Key]:
    """Yield the bucket of all objects that may request a load balancer."""
    yield LOAD_BALANCERS


def node_buckets(_: Any) -> Iterable[Key]:
    """Yield the bucket of all Nodes."""
    yield NODES


def service_buckets(value: Any) -> Iterable[Key]:
    """Yield the buckets of a Service whose ports may claim upstreams."""
    # Ports without a name cannot claim an upstream; most Services have only such ports.
    if isinstance(value, external_services.Service) and any(port.name for port in value.spec.ports):
        yield SERVICES
        yield (*SERVICES, value.metadata.namespace)


def slice_buckets(value: Any) -> Iterable[Key]:
    """Yield the bucket of an EndpointSlice: its Service."""
    service = value.metadata.labels.get(SERVICE_NAME)
    if service:
        yield ("@slices", value.metadata.namespace, service)
