"""Kubernetes settings of a Gateway's data plane: the field ``kubernetes`` of NginxProxy and
GatewayParameters.

Fields and meanings are those of NGINX Gateway Fabric. Parts of Pods are passed on unchanged; the
API server validates them when the Pod is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis.meta import View

Piece = dict[str, Any]
"""A part of a Kubernetes object, as written by the user."""


class Patch(View, frozen=True):
    """A patch of an object provisioned for a Gateway."""

    type: str = "StrategicMerge"
    """``StrategicMerge``, ``Merge`` (RFC 7386) or ``JSONPatch`` (RFC 6902)."""
    value: Any = None


class Autoscaling(View, frozen=True):
    """A HorizontalPodAutoscaler."""

    enable: bool = False
    min_replicas: int | None = None
    max_replicas: int = 1
    target_cpu_utilization_percentage: int | None = msgspec.field(
        default=None, name="targetCPUUtilizationPercentage"
    )
    target_memory_utilization_percentage: int | None = None
    metrics: tuple[Piece, ...] = ()
    behavior: Piece | None = None


class DisruptionBudget(View, frozen=True):
    """A PodDisruptionBudget."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodOptions(View, frozen=True):
    """Settings of the Pods."""

    termination_grace_period_seconds: int | None = None
    affinity: Piece | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Piece, ...] = ()
    volumes: tuple[Piece, ...] = ()
    topology_spread_constraints: tuple[Piece, ...] = ()


class Image(View, frozen=True):
    """Image of the container."""

    repository: str | None = None
    tag: str | None = None
    pull_policy: str | None = None


class HostPort(View, frozen=True):
    """A port of the node mapped to a port of the container."""

    port: int
    container_port: int


class ReadinessProbe(View, frozen=True):
    """Readiness probe of the Pods."""

    initial_delay_seconds: int | None = None
    period_seconds: int | None = None


class ContainerOptions(View, frozen=True):
    """Settings of the container with agent and proxy."""

    image: Image = Image()
    resources: Piece | None = None
    lifecycle: Piece | None = None
    readiness_probe: ReadinessProbe = ReadinessProbe()
    host_ports: tuple[HostPort, ...] = ()
    volume_mounts: tuple[Piece, ...] = ()


class DaemonSetOptions(View, frozen=True):
    """Settings of a DaemonSet."""

    pod: PodOptions = PodOptions()
    container: ContainerOptions = ContainerOptions()
    patches: tuple[Patch, ...] = ()


class DeploymentOptions(DaemonSetOptions, frozen=True):
    """Settings of a Deployment."""

    replicas: int | None = None
    autoscaling: Autoscaling = Autoscaling()
    pod_disruption_budget: DisruptionBudget | None = None


class NodePort(View, frozen=True):
    """Node port for a listener's port."""

    port: int
    listener_port: int


class ServiceOptions(View, frozen=True):
    """The Service in front of the Pods."""

    type: str = "LoadBalancer"
    external_traffic_policy: str | None = None
    load_balancer_ip: str | None = msgspec.field(default=None, name="loadBalancerIP")
    load_balancer_class: str | None = None
    load_balancer_source_ranges: tuple[str, ...] = ()
    node_ports: tuple[NodePort, ...] = ()
    patches: tuple[Patch, ...] = ()


class NetworkOptions(View, frozen=True):
    """Settings of the NetworkPolicy of the Pods. None means that the outer settings apply."""

    enable: bool | None = None
    """Create a NetworkPolicy."""
    metrics_from: tuple[Piece, ...] | None = None
    """NetworkPolicyPeers that may read metrics. If empty, only the node may."""
    egress_to: tuple[Piece, ...] | None = None
    """NetworkPolicyPeers that Pods may connect to, in addition to the control plane and DNS."""
    patches: tuple[Patch, ...] | None = None

    def over(self, outer: NetworkOptions) -> NetworkOptions:
        """Return these settings, with unset fields taken from ``outer``."""
        present = {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(outer, **present)


class Workload(View, frozen=True):
    """All Kubernetes settings. A DaemonSet replaces the Deployment."""

    deployment: DeploymentOptions = DeploymentOptions()
    daemon_set: DaemonSetOptions | None = None
    service: ServiceOptions = ServiceOptions()
    network_policy: NetworkOptions = NetworkOptions()


def over(outer: Any, inner: Any) -> Any:
    """Merge ``inner`` over ``outer``. Objects are merged field by field; lists and scalars are
    replaced.

    Deployment and DaemonSet exclude each other: the inner one replaces the outer one.
    """
    if not (isinstance(outer, Mapping) and isinstance(inner, Mapping)):
        return inner
    remaining = {key: value for key, value in outer.items() if key in inner or _remains(key, inner)}
    return {
        **remaining,
        **{
            key: over(outer[key], value) if key in remaining else value
            for key, value in inner.items()
        },
    }


def _remains(key: str, inner: Mapping[str, Any]) -> bool:
    alternatives = {"deployment": "daemonSet", "daemonSet": "deployment"}
    return alternatives.get(key) not in inner
