"""Statuses of workloads and Pods that the node of one machine does not run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gatehouse.standalone.node import not_run

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = {"app.kubernetes.io/managed-by": "gatehouse"}
ANNOTATIONS = {"gatehouse.dev/service-name": "web"}


def obj(kind: str, *, node: str = "", **metadata: Any) -> dict[str, Any]:
    spec = {"nodeName": node} if node else {}
    return {"kind": kind, "metadata": {"name": "a", **metadata}, "spec": spec}


@pytest.mark.parametrize(
    ("foreign_object", "foreign"),
    [
        (obj("Deployment"), True),
        (obj("Job"), True),
        (obj("Deployment", labels=LABELS), False),
        (obj("Deployment", deletionTimestamp="2026-01-01T00:00:00Z"), False),
        (obj("Pod"), True),
        (obj("Pod", node="local"), True),
        (obj("Pod", node="other"), False),
        (obj("Pod", labels=LABELS, annotations=ANNOTATIONS), False),
        (obj("Pod", labels=LABELS), True),
    ],
)
def test_foreign_object_is_recognized(foreign_object: dict[str, Any], foreign: bool) -> None:
    assert not_run.is_foreign(foreign_object, "local") is foreign


@pytest.mark.parametrize(
    ("kind", "type_"), [("Deployment", "Available"), ("Pod", "PodScheduled"), ("Job", "Complete")]
)
def test_status_reports_once_why_nothing_runs(kind: str, type_: str) -> None:
    pending = {**obj(kind), "status": {"phase": "Pending"}}
    status = not_run.not_run_status(pending, not_run.MESSAGE, NOW)
    assert status is not None
    [condition] = status["conditions"]
    assert (condition["type"], condition["status"]) == (type_, "False")
    assert condition["message"] == "this node runs data planes of Gatehouse only"
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert status["phase"] == "Pending"
    assert not_run.not_run_status({**pending, "status": status}, not_run.MESSAGE, NOW) is None


def test_status_of_another_controller_stays() -> None:
    other = {"conditions": [{"type": "Available", "status": "True"}]}
    assert (
        not_run.not_run_status({**obj("Deployment"), "status": other}, not_run.MESSAGE, NOW) is None
    )


def test_status_of_rejected_data_plane_follows_the_reason() -> None:
    deployment = obj("Deployment", labels=LABELS)
    first = not_run.not_run_status(deployment, "GatewayClass a not found", NOW)
    assert first is not None
    later = not_run.not_run_status({**deployment, "status": first}, "GatewayClass b not found", NOW)
    assert later is not None
    assert [one["message"] for one in later["conditions"]] == ["GatewayClass b not found"]


@pytest.mark.parametrize(
    ("container", "fields"),
    [
        ({}, []),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}, []),
        ({"readinessProbe": {"httpGet": {"port": 1}}, "livenessProbe": None}, []),
        (
            {"lifecycle": {"preStop": {"exec": {}}, "postStart": {"sleep": {"seconds": 1}}}},
            ["lifecycle.preStop.exec", "lifecycle.postStart.sleep"],
        ),
        (
            {"livenessProbe": {"tcpSocket": {"port": 1}}, "startupProbe": {"httpGet": {}}},
            ["startupProbe", "livenessProbe"],
        ),
        ({"lifecycle": {"preStop": None, "postStart": {}}}, []),
        ({"readinessProbe": {"httpGet": {"port": "web"}}}, ["readinessProbe"]),
        ({"readinessProbe": {"httpGet": {"port": 1, "scheme": "HTTPS"}}}, ["readinessProbe"]),
        ({"readinessProbe": {"httpGet": {"port": 1, "host": "h"}}}, ["readinessProbe"]),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, ["envFrom"]),
    ],
)
def test_ignored_fields_are_named(container: dict[str, Any], fields: list[str]) -> None:
    workload = {"spec": {"template": {"spec": {"containers": [container]}}}}
    assert not_run.ignored_fields(workload) == fields
