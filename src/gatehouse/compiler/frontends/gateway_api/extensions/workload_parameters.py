"""Parameters of a data plane's Deployment, Service and other objects: ``spec.kubernetes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gatehouse.apis import data_plane_parameters as api
from gatehouse.apis import data_plane_workload as api_workload
from kube_base.types import ip_addresses


def parse_workload(spec: api.ParametersSpec) -> tuple[api_workload.Workload, list[str]]:
    """Parse the parameters; return the workload and the problems."""
    raw = spec.kubernetes or {}
    try:
        workload = msgspec.convert(raw, api_workload.Workload)
    except msgspec.ValidationError as error:
        return api_workload.Workload(), [f"spec.kubernetes: {error}"]
    problems = []
    if "deployment" in raw and "daemonSet" in raw:
        problems.append("spec.kubernetes: deployment and daemonSet must not both be set")
    scaling = workload.deployment.autoscaling
    if scaling.enable and (scaling.min_replicas or 1) > scaling.max_replicas:
        where = "spec.kubernetes.deployment.autoscaling.minReplicas"
        problems.append(f"{where}: must not be more than maxReplicas ({scaling.max_replicas})")
    budget = workload.deployment.pod_disruption_budget
    if budget and (budget.min_available is None) == (budget.max_unavailable is None):
        where = "spec.kubernetes.deployment.podDisruptionBudget"
        problems.append(f"{where}: exactly one of minAvailable and maxUnavailable must be set")
    for index, cidr in enumerate(workload.service.load_balancer_source_ranges):
        try:
            ip_addresses.ip_network(cidr, strict=False)
        except ValueError:
            where = f"spec.kubernetes.service.loadBalancerSourceRanges[{index}]"
            problems.append(f"{where}: {cidr!r} must be a CIDR range")
    return workload, [*problems, *_patch_problems(workload)]


def _patch_problems(workload: api_workload.Workload) -> Iterator[str]:
    """Yield the problems of patches whose value has the wrong type.

    The CRD cannot check this: the value is not visible to CEL.
    """
    daemon_set = workload.daemon_set
    places = {
        "deployment": workload.deployment.patches,
        "daemonSet": daemon_set.patches if daemon_set else (),
        "service": workload.service.patches,
        "networkPolicy": workload.network_policy.patches or (),
    }
    for place, patches in places.items():
        for index, patch in enumerate(patches):
            is_list = patch.type == "JSONPatch"
            if not isinstance(patch.value, list if is_list else Mapping):
                where = f"spec.kubernetes.{place}.patches[{index}].value"
                expected = "a list of operations" if is_list else "an object"
                yield f"{where}: must be {expected} for type {patch.type}"
