"""The column Targets of HorizontalPodAutoscalers: present and desired value of each metric."""

from __future__ import annotations

from collections.abc import Iterator

from kube_base.types.objects import Object

_UNKNOWN = "<unknown>"
_PARTS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""Field of a metric by its type."""
_SHOWN = 2
"""Maximum number of metrics in the column."""
_NAMED = ("Resource", "ContainerResource")


def targets(autoscaler: Object) -> str:
    """Return the column of an autoscaler in version 2."""
    texts = list(_metrics(autoscaler))
    text = ", ".join(texts[:_SHOWN])
    if len(texts) > _SHOWN:
        return f"{text} + {len(texts) - _SHOWN} more..."
    return text or "<none>"


def _metrics(autoscaler: Object) -> Iterator[str]:
    """Yield the values of each metric of an autoscaler in version 2."""
    metrics = (autoscaler.get("spec") or {}).get("metrics") or ()
    statuses = (autoscaler.get("status") or {}).get("currentMetrics") or ()
    for index, metric in enumerate(metrics):
        kind = metric.get("type", "")
        if kind not in _PARTS:
            yield "<unknown type>"
            continue
        spec = metric.get(_PARTS[kind]) or {}
        status = statuses[index] if index < len(statuses) else {}
        current = ((status.get(_PARTS[kind]) or {}).get("current")) or {}
        values = _values(kind, spec.get("target") or {}, current)
        yield f"{spec.get('name', '')}: {values}" if kind in _NAMED else values


def _values(kind: str, target: Object, current: Object) -> str:
    """Return present and desired value."""
    if target.get("averageValue") is not None:
        suffix = " (avg)" if kind in ("External", "Object") else ""
        return f"{current.get('averageValue', _UNKNOWN)}/{target['averageValue']}{suffix}"
    if kind in _NAMED:
        percents = (current.get("averageUtilization"), target.get("averageUtilization"))
        present = _UNKNOWN if percents[0] is None else f"{percents[0]}%"
        return f"{present}/{'<auto>' if percents[1] is None else f'{percents[1]}%'}"
    return f"{current.get('value', _UNKNOWN)}/{target.get('value', _UNKNOWN)}"
