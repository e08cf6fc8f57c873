"""HorizontalPodAutoscaler, PodDisruptionBudget and replicas of a data plane. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis.data_plane_workload import Autoscaling, DisruptionBudget
from gatehouse.apis.resources import DEPLOYMENTS
from kube_base.types.objects import Object


def autoscaler_spec(name: str, options: Autoscaling) -> Object:
    """Return the ``spec`` of a HorizontalPodAutoscaler over the Deployment of this name."""
    metrics: list[Object] = []
    for resource, target in (
        ("cpu", options.target_cpu_utilization_percentage),
        ("memory", options.target_memory_utilization_percentage),
    ):
        if target is not None:
            utilization = {"type": "Utilization", "averageUtilization": target}
            metrics.append(
                {"type": "Resource", "resource": {"name": resource, "target": utilization}}
            )
    result: Object = {
        "scaleTargetRef": {
            "apiVersion": DEPLOYMENTS.api_version,
            "kind": DEPLOYMENTS.kind,
            "name": name,
        },
        "minReplicas": options.min_replicas or 1,
        "maxReplicas": options.max_replicas,
    }
    if metrics or options.metrics:
        result["metrics"] = [*metrics, *options.metrics]
    if options.behavior:
        result["behavior"] = options.behavior
    return result


def budget(selector: Mapping[str, str], options: DisruptionBudget) -> Object:
    """Return the ``spec`` of a PodDisruptionBudget over the Pods with these labels."""
    result: Object = {"selector": {"matchLabels": dict(selector)}}
    fields = {
        "minAvailable": options.min_available,
        "maxUnavailable": options.max_unavailable,
        "unhealthyPodEvictionPolicy": options.unhealthy_pod_eviction_policy,
    }
    return result | {key: value for key, value in fields.items() if value is not None}


def with_current_replicas(
    current: Mapping[str, Any], desired: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the desired Deployment with the current replicas, which an autoscaler sets."""
    replicas = current.get("spec", {}).get("replicas")
    if replicas is None:
        return desired
    return {**desired, "spec": {**desired["spec"], "replicas": replicas}}


def initial_replicas(specified: int | None, options: Autoscaling) -> int:
    """Return the initial number of Pods."""
    min_replicas = (options.min_replicas or 1) if options.enable else 1
    return min_replicas if specified is None else specified
