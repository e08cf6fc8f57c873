"""Inputs of the front end: kinds, index buckets, and keys of values that the controller sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gatehouse.apis import core, external_load_balancers, external_services, meta, resources
from gatehouse.incremental.query import Index, Key

VIEWS: Mapping[str, type[meta.Resource]] = {
    "Service": external_services.Service,
    "EndpointSlice": external_services.EndpointSlice,
    "Node": external_services.Node,
    "Secret": core.Secret,
    "ConfigMap": core.ConfigMap,
    "ExternalLoadBalancer": external_load_balancers.ExternalLoadBalancer,
}

KINDS: tuple[resources.Resource, ...] = (
    resources.SERVICES,
    resources.ENDPOINT_SLICES,
    resources.NODES,
    resources.SECRETS,
    resources.CONFIG_MAPS,
    resources.EXTERNAL_LOAD_BALANCERS,
)
"""Resources to watch."""

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


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Decode an object of one of :data:`KINDS`. Never raises."""
    return meta.decode(VIEWS[kind], raw)


def relevant(kind: str, namespace: str, name: str) -> bool:
    """Return whether an object can matter here; of ConfigMaps only :data:`NLK_CONFIG_KEY` can."""
    return kind != "ConfigMap" or (kind, namespace, name) == NLK_CONFIG_KEY


def _balancer_buckets(_: Any) -> Iterable[Key]:
    yield LOAD_BALANCERS


def _node_buckets(_: Any) -> Iterable[Key]:
    yield NODES


def _service_buckets(value: Any) -> Iterable[Key]:
    # Ports without a name cannot claim an upstream; most Services have only such ports.
    if isinstance(value, external_services.Service) and any(port.name for port in value.spec.ports):
        yield SERVICES
        yield (*SERVICES, value.metadata.namespace)


def _slice_buckets(value: Any) -> Iterable[Key]:
    service = value.metadata.labels.get(SERVICE_NAME)
    if service:
        yield ("@slices", value.metadata.namespace, service)


INDEXES: Mapping[str, tuple[Index, ...]] = {
    "ExternalLoadBalancer": (_balancer_buckets,),
    "ConfigMap": (_balancer_buckets,),
    "Node": (_node_buckets,),
    "Service": (_service_buckets,),
    "EndpointSlice": (_slice_buckets,),
}
"""Index buckets of each kind, for :class:`gatehouse.incremental.query.Snapshot`."""
