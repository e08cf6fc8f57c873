"""Statuses of workloads and Pods that the node does not run. No I/O."""

from __future__ import annotations

from datetime import datetime

from gatehouse.standalone.node import pods, probes
from kube_base.types.objects import Object, ReadOnlyObject

MESSAGE = "this node runs data planes of Gatehouse only"
REASON = "NotRun"

_CONDITION_TYPES = {"Pod": "PodScheduled", "Job": "Complete"}
_DAEMON_SET_COUNTS = (
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberMisscheduled",
    "numberReady",
)
"""Fields that the API requires in a status."""

_SUPPORTED_PROBES = ("readinessProbe", "livenessProbe")


def is_foreign(obj: ReadOnlyObject, node: str) -> bool:
    """Return whether an object is a workload or Pod for this node but not a data plane."""
    if obj["metadata"].get("deletionTimestamp"):
        return False
    if obj["kind"] == "Pod":
        return obj["spec"].get("nodeName", node) == node and not pods.has_service_address(obj)
    return not pods.is_managed_object(obj)


def not_run_status(obj: ReadOnlyObject, message: str, now: datetime) -> Object | None:
    """Return a status whose condition says why an object is not run; None if it has one already.

    A message about all foreign objects replaces no condition of another controller.
    """
    current = obj.get("status") or {}
    known = current.get("conditions") or []
    if any(one.get("message") == message for one in known) or (known and message == MESSAGE):
        return None
    condition = {
        "type": _CONDITION_TYPES.get(obj["kind"], "Available"),
        "status": "False",
        "reason": REASON,
        "message": message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    counts = dict.fromkeys(_DAEMON_SET_COUNTS, 0) if obj["kind"] == "DaemonSet" else {}
    return {**counts, **current, "conditions": [condition]}


def ignored_fields(workload: ReadOnlyObject) -> list[str]:
    """Return the fields of a data plane's container that this node does not support."""
    container = workload["spec"]["template"]["spec"]["containers"][0]
    hooks = container.get("lifecycle") or {}
    fields = [f"{name}.{one}" for name, hook in hooks.items() for one in hook or ()]
    ignored = [f"lifecycle.{field}" for field in fields if field != "preStop.sleep"]
    ignored += [field for field in ("startupProbe", "envFrom") if container.get(field)]
    return ignored + [
        field
        for field in _SUPPORTED_PROBES
        if container.get(field) and not probes.is_supported(container[field])
    ]
