"""How many Pods there are, and how many may be away at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis.data_plane_workload import Autoscaling, DisruptionBudget
from gatehouse.apis.resources import DEPLOYMENTS

Object = dict[str, Any]


def autoscaler(name: str, options: Autoscaling) -> Object:
    """Give the ``spec`` of a HorizontalPodAutoscaler over the Deployment of this name."""
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
    made: Object = {
        "scaleTargetRef": {
            "apiVersion": DEPLOYMENTS.api_version,
            "kind": DEPLOYMENTS.kind,
            "name": name,
        },
        "minReplicas": options.min_replicas or 1,
        "maxReplicas": options.max_replicas,
    }
    if metrics or options.metrics:
        made["metrics"] = [*metrics, *options.metrics]
    if options.behavior:
        made["behavior"] = options.behavior
    return made


def budget(selector: Mapping[str, str], options: DisruptionBudget) -> Object:
    """Give the ``spec`` of a PodDisruptionBudget over the Pods with these labels."""
    made: Object = {"selector": {"matchLabels": dict(selector)}}
    stated = {
        "minAvailable": options.min_available,
        "maxUnavailable": options.max_unavailable,
        "unhealthyPodEvictionPolicy": options.unhealthy_pod_eviction_policy,
    }
    return made | {key: value for key, value in stated.items() if value is not None}


def scaled(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a wanted Deployment with the number of Pods that it has: an autoscaler says how many."""
    now = current.get("spec", {}).get("replicas")
    if now is None:
        return wanted
    return {**wanted, "spec": {**wanted["spec"], "replicas": now}}


def replicas(asked: int | None, options: Autoscaling) -> int:
    """Give the number of Pods to begin with."""
    least = (options.min_replicas or 1) if options.enable else 1
    return least if asked is None else asked
