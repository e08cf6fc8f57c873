"""How a Gateway's data plane is to be run: the part ``kubernetes`` of NginxProxy and DataPlane.

Fields and meanings are NGINX Gateway Fabric's. Pieces of Pods are kept as they are written: only
the API server that takes the Pod judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis.meta import View

Piece = dict[str, Any]
"""A part of a Kubernetes object, as its author wrote it."""


class Patch(View, frozen=True):
    """A change to an object that is made for a Gateway."""

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
    """Of the Pods."""

    termination_grace_period_seconds: int | None = None
    affinity: Piece | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Piece, ...] = ()
    volumes: tuple[Piece, ...] = ()
    topology_spread_constraints: tuple[Piece, ...] = ()


class Image(View, frozen=True):
    """Where the container's image is."""

    repository: str | None = None
    tag: str | None = None
    pull_policy: str | None = None


class HostPort(View, frozen=True):
    """A port of the node that leads to one of the container."""

    port: int
    container_port: int


class ReadinessProbe(View, frozen=True):
    """When a Pod gets traffic."""

    initial_delay_seconds: int | None = None
    period_seconds: int | None = None


class ContainerOptions(View, frozen=True):
    """Of the container with agent and proxy."""

    image: Image = Image()
    resources: Piece | None = None
    lifecycle: Piece | None = None
    readiness_probe: ReadinessProbe = ReadinessProbe()
    host_ports: tuple[HostPort, ...] = ()
    volume_mounts: tuple[Piece, ...] = ()


class DaemonSetOptions(View, frozen=True):
    """A Pod on each node."""

    pod: PodOptions = PodOptions()
    container: ContainerOptions = ContainerOptions()
    patches: tuple[Patch, ...] = ()


class DeploymentOptions(DaemonSetOptions, frozen=True):
    """So many Pods."""

    replicas: int | None = None
    autoscaling: Autoscaling = Autoscaling()
    pod_disruption_budget: DisruptionBudget | None = None


class NodePort(View, frozen=True):
    """The node port of a listener's port."""

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
    """The NetworkPolicy of the Pods; what is None is said by who asks for less."""

    enable: bool | None = None
    """Whether there is one."""
    metrics_from: tuple[Piece, ...] | None = None
    """NetworkPolicyPeers that may read measurements; none of them: nobody but the node."""
    egress_to: tuple[Piece, ...] | None = None
    """NetworkPolicyPeers that Pods may reach beside the control plane and the DNS."""
    patches: tuple[Patch, ...] | None = None

    def over(self, outer: NetworkOptions) -> NetworkOptions:
        """Give this, with what it does not say as ``outer`` says it."""
        said = {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(outer, **said)


class Workload(View, frozen=True):
    """Everything; a DaemonSet stands instead of a Deployment."""

    deployment: DeploymentOptions = DeploymentOptions()
    daemon_set: DaemonSetOptions | None = None
    service: ServiceOptions = ServiceOptions()
    network_policy: NetworkOptions = NetworkOptions()


def over(outer: Any, inner: Any) -> Any:
    """Put one statement over another: fields within fields, lists and values as a whole.

    A Deployment and a DaemonSet exclude each other, so that the inner one takes the place.
    """
    if not (isinstance(outer, Mapping) and isinstance(inner, Mapping)):
        return inner
    kept = {key: value for key, value in outer.items() if key in inner or _stays(key, inner)}
    return {
        **kept,
        **{key: over(outer[key], value) if key in kept else value for key, value in inner.items()},
    }


def _stays(key: str, inner: Mapping[str, Any]) -> bool:
    rivals = {"deployment": "daemonSet", "daemonSet": "deployment"}
    return rivals.get(key) not in inner
