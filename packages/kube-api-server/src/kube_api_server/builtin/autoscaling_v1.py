"""Conversion between HorizontalPodAutoscalers of autoscaling/v1 and v2, which share their objects.

Version 1 has one metric, the utilization of CPU. Annotations carry everything else, so that a
client of version 1 that writes what it read loses nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kube_api_server.errors import bad_request
from kube_base.types.objects import Object

_V1, _V2 = "autoscaling/v1", "autoscaling/v2"
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_ANNOTATED = {
    "metrics": ("spec", "metrics"),
    "behavior": ("spec", "behavior"),
    "current-metrics": ("status", "currentMetrics"),
    "conditions": ("status", "conditions"),
}
"""Part and field of version 2 by the name of the annotation that carries the field."""


def from_v2(stored: Object) -> Object:
    """Return a stored autoscaler in version 1."""
    annotations = dict(stored["metadata"].get("annotations") or {})
    parts = {part: dict(stored.get(part) or {}) for part in ("spec", "status")}
    target, others = _split(parts["spec"].pop("metrics", None) or [], "target")
    current, current_others = _split(parts["status"].pop("currentMetrics", None) or [], "current")
    if target is not None:
        parts["spec"]["targetCPUUtilizationPercentage"] = target
    if current is not None:
        parts["status"]["currentCPUUtilizationPercentage"] = current
    values = {
        "metrics": others,
        "behavior": parts["spec"].pop("behavior", None),
        "current-metrics": current_others,
        "conditions": parts["status"].pop("conditions", None),
    }
    for name, value in values.items():
        if value:
            annotations[_PREFIX + name] = msgspec.json.encode(value).decode()
    metadata = dict(stored["metadata"])
    if annotations:
        metadata["annotations"] = annotations
    status = {"currentReplicas": 0, "desiredReplicas": 0, **parts["status"]}
    return {
        **stored,
        "apiVersion": _V1,
        "metadata": metadata,
        "spec": parts["spec"],
        "status": status,
    }


def to_v2(body: Object) -> Object:
    """Return a body of version 1 as an object of version 2. Raises StatusError 400.

    Values of a wrong type stay, and validation reports them.
    """
    metadata = body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        annotations = {}
    result = dict(body)
    if body.get("apiVersion") == _V1:
        result["apiVersion"] = _V2
    for part in ("spec", "status"):
        if isinstance(body.get(part), dict):
            result[part] = _part(part, body[part], annotations)
    if isinstance(metadata, dict) and annotations:
        names = [_PREFIX + name for name in _ANNOTATED]
        left = {key: value for key, value in annotations.items() if key not in names}
        result["metadata"] = {**metadata, "annotations": left}
        if not left:
            del result["metadata"]["annotations"]
    return result


def _part(part: str, fields: Object, annotations: Object) -> Object:
    """Return spec or status of a body with the fields of version 2."""
    names = {name: field for name, (holder, field) in _ANNOTATED.items() if holder == part}
    result = {key: value for key, value in fields.items() if key not in names.values()}
    for name, field in names.items():
        if _PREFIX + name in annotations:
            result[field] = _decoded(_PREFIX + name, annotations[_PREFIX + name])
    source, metrics, kind = (
        ("targetCPUUtilizationPercentage", "metrics", "target")
        if part == "spec"
        else ("currentCPUUtilizationPercentage", "currentMetrics", "current")
    )
    percentage = result.pop(source, None)
    if percentage is not None:
        value: Object = {"averageUtilization": percentage}
        if kind == "target":
            value["type"] = "Utilization"
        metric = {"type": "Resource", "resource": {"name": "cpu", kind: value}}
        others = result.get(metrics)
        result[metrics] = [*(others if isinstance(others, list) else ()), metric]
    return result


def _decoded(name: str, text: Any) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise bad_request(f"metadata.annotations[{name}]: invalid value: must be JSON") from error


def _split(metrics: list[Object], kind: str) -> tuple[int | None, list[Object]]:
    """Return the utilization of CPU, and the other metrics."""
    utilization, others = None, []
    for metric in metrics:
        resource = metric.get("resource") or {}
        value = (resource.get(kind) or {}).get("averageUtilization")
        if utilization is None and resource.get("name") == "cpu" and value is not None:
            utilization = value
        else:
            others.append(metric)
    return utilization, others
