"""Services, EndpointSlices and Nodes, with the fields that external load balancers need."""

from __future__ import annotations

import msgspec

from gatehouse.apis import core
from gatehouse.apis.meta import AnnotatedMeta, View
from gatehouse.apis.meta import KubernetesObject as Base


class ExternalServicePort(View, frozen=True):
    """One port of a Service."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    node_port: int = 0
    """Node port; 0 if none is assigned."""


class ExternalServiceSpec(View, frozen=True):
    """``spec`` of a Service."""

    type: str = "ClusterIP"
    ports: tuple[ExternalServicePort, ...] = ()
    external_traffic_policy: str = ""
    ip_families: tuple[str, ...] = ()


class ExternalService(Base, frozen=True):
    """A Service."""

    metadata: AnnotatedMeta
    spec: ExternalServiceSpec = ExternalServiceSpec()
    status: core.ServiceStatus = core.ServiceStatus()


class ExternalEndpointConditions(View, frozen=True):
    """Conditions of an endpoint. Unknown conditions count as good (EndpointSlice API)."""

    ready: bool = True
    serving: bool | None = None
    terminating: bool = False


class ExternalEndpoint(View, frozen=True):
    """One endpoint."""

    addresses: tuple[str, ...] = ()
    conditions: ExternalEndpointConditions = ExternalEndpointConditions()
    node_name: str = ""


class ExternalEndpointSlice(Base, frozen=True):
    """Endpoints of the Service in the label ``kubernetes.io/service-name``."""

    address_type: str = "IPv4"
    ports: tuple[core.EndpointPort, ...] = ()
    endpoints: tuple[ExternalEndpoint, ...] = ()


class NodeSpec(View, frozen=True):
    """``spec`` of a Node."""

    unschedulable: bool = False


class NodeAddress(View, frozen=True):
    """An address of a Node."""

    type: str
    address: str


class NodeCondition(View, frozen=True):
    """A condition of a Node, without its heartbeat."""

    type: str
    status: str = "Unknown"


class NodeStatus(View, frozen=True):
    """``status`` of a Node."""

    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()

    @property
    def ready(self) -> bool:
        """True if the kubelet reports ready, or has not reported yet."""
        statuses = [condition.status for condition in self.conditions if condition.type == "Ready"]
        return not statuses or statuses[0] == "True"


class Node(Base, frozen=True):
    """A Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
