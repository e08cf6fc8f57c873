"""Pods of data planes with the configuration version that each has confirmed. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gatehouse.compiler.evaluation.explanation import ExplainedDataPlane
from gatehouse.inspection.condition_summary import condition_status
from gatehouse.inspection.data_plane_metrics import MetricsPage
from kube_base.types.objects import Object

_METRIC = re.compile(
    r'^gatehouse_agent_configuration_info\{[^}]*\bversion="([^"]*)"[^}]*\} 1', re.MULTILINE
)


def explain_data_planes(
    pods: Iterable[Object], pages: Iterable[MetricsPage]
) -> tuple[ExplainedDataPlane, ...]:
    """Return Pods with the versions on their metrics pages, which are in the same order."""
    return tuple(_data_plane(pod, page) for pod, page in zip(pods, pages, strict=True))


def _data_plane(pod: Object, page: MetricsPage) -> ExplainedDataPlane:
    status = pod.get("status") or {}
    ready = condition_status(status.get("conditions"), "Ready")[0] == "True"
    containers = status.get("containerStatuses") or [{}]
    waiting = (containers[0].get("state") or {}).get("waiting") or {}
    version = _METRIC.search(page.text)
    problem = waiting.get("message", "") or page.problem
    return ExplainedDataPlane(page.pod, ready, version[1] if version else "", problem)
