"""What the front end reads: kinds, index buckets, and what the controller tells it."""

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
"""The resources to watch."""

NLK_NAMESPACE, NLK_NAME = "nlk", "nlk-config"
NLK_CONFIG_KEY: Key = ("ConfigMap", NLK_NAMESPACE, NLK_NAME)
"""The settings of nginx-loadbalancer-kubernetes."""

NLK_SERVICES = "nginx-ingress"
"""The namespace whose Services nginx-loadbalancer-kubernetes follows."""

LOAD_BALANCERS: Key = ("@load-balancers",)
NODES: Key = ("@nodes",)
SERVICES: Key = ("@services",)

SERVICE_NAME = "kubernetes.io/service-name"


def owned(source: Key) -> Key:
    """Give the key of the upstreams that are ours on a load balancer's hosts.

    A mapping of :class:`gatehouse.compiler.ir.load_balancing.Name` to the Service that asked
    last, which the
    controller keeps: only these are ever emptied.
    """
    return ("Owned", *source)


def name_of(source: Key) -> str:
    """Give the name of a source, for people and for transports: ``Kind namespace/name``."""
    return f"{source[0]} {source[1]}/{source[2]}"


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Read an object of one of :data:`KINDS`; never raises."""
    return meta.decode(VIEWS[kind], raw)


def relevant(kind: str, namespace: str, name: str) -> bool:
    """Whether an object can matter here at all; of ConfigMaps a single one does."""
    return kind != "ConfigMap" or (kind, namespace, name) == NLK_CONFIG_KEY


def _balancer_buckets(_: Any) -> Iterable[Key]:
    yield LOAD_BALANCERS


def _node_buckets(_: Any) -> Iterable[Key]:
    yield NODES


def _service_buckets(value: Any) -> Iterable[Key]:
    # Most Services have no name on their ports, and so can never be meant.
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
"""The index buckets of each kind, for :class:`gatehouse.query.Snapshot`."""
