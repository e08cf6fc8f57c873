"""Objects that Gatehouse owns: other controllers accept them, and deleted ones come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from cluster import example, running
from cluster.conftest import NAMESPACE, leader
from cluster.example import DEPLOYMENTS, kubectl
from cluster.running import wait_until
from cluster.traffic import requests_to

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

QUIET_KINDS = (
    "horizontalpodautoscaler",
    "poddisruptionbudget",
    "networkpolicy",
    "configmap",
    "secret",
    "serviceaccount",
)
"""Kinds whose deletion stops no Pod."""

TRAFFIC_KINDS = ("deployment", "service")
AUTOSCALING = {
    "enable": True,
    "minReplicas": 2,
    "maxReplicas": 3,
    "targetCPUUtilizationPercentage": 80,
}


@pytest.fixture(scope="module")
def all_kinds(urls: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Have each Gateway own an object of every kind. Return the URLs."""
    _set_autoscaling(AUTOSCALING)
    for kind in (*QUIET_KINDS, *TRAFFIC_KINDS):
        wait_until(f"each Gateway owns a {kind}", _is_owned_by_each, kind)
    yield urls
    _set_autoscaling(None)
    wait_until("autoscalers are deleted", lambda: not example.owned("hpa"))
    example.rolled_out(*DEPLOYMENTS)


def _set_autoscaling(value: dict[str, Any] | None) -> None:
    deployment = {"autoscaling": value}
    spec = {"kubernetes": {"deployment": deployment}}
    example.patch("gatewayparameters/two", {"spec": spec})


def _is_owned_by_each(kind: str) -> bool:
    return len(example.owned(kind)) >= len(DEPLOYMENTS)


def test_kubernetes_controllers_process_autoscalers_and_budgets(all_kinds: tuple[str, ...]) -> None:
    for name in DEPLOYMENTS:
        wait_until("the autoscaler reads the Deployment", _autoscaler_works, name)
        wait_until("the budget counts the Pods", _budget_counts, name)


def _autoscaler_works(name: str) -> bool:
    """Return whether an autoscaler knows its Deployment; metrics are not served here."""
    (autoscaler,) = (
        item
        for item in example.objects("hpa")["items"]
        if item["spec"]["scaleTargetRef"]["name"] == name
    )
    status = {c["type"]: c["reason"] for c in autoscaler["status"]["conditions"]}
    return status["AbleToScale"] in ("SucceededGetScale", "ReadyForNewScale") and (
        status["ScalingActive"] == "FailedGetResourceMetric"
    )


def _budget_counts(name: str) -> bool:
    status = example.objects("poddisruptionbudget", name)["status"]
    return (status["expectedPods"], status["currentHealthy"]) == (2, 2) and (
        status["disruptionsAllowed"] == 1
    )


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_deleted_objects_are_created_again_and_no_request_is_lost(
    all_kinds: tuple[str, ...], cascade: str
) -> None:
    with requests_to(*all_kinds):
        for kind in QUIET_KINDS:
            _created_again(kind, _delete(kind, cascade))
        example.change_is_served(all_kinds, f"deleted-{cascade}")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_deleted_deployments_and_services_are_created_again(
    all_kinds: tuple[str, ...], cascade: str
) -> None:
    for kind in TRAFFIC_KINDS:
        _created_again(kind, _delete(kind, cascade))
    example.rolled_out(*DEPLOYMENTS)
    example.served()


def test_pods_of_deployments_deleted_alone_lose_no_request(all_kinds: tuple[str, ...]) -> None:
    urls = example.served()
    pods = example.owned("pods")
    with requests_to(*urls):
        _created_again("deployment", _delete("deployment", "orphan"))
        example.rolled_out(*DEPLOYMENTS)
        example.change_is_served(urls, "orphans")
    assert example.owned("pods") == pods


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_objects_deleted_while_no_controller_runs_are_created_again(
    all_kinds: tuple[str, ...], cascade: str
) -> None:
    urls = example.served()
    deleted = {}
    with requests_to(*urls):
        _scale_controllers(0)
        for kind in QUIET_KINDS:
            deleted[kind] = _delete(kind, cascade)
    for kind in TRAFFIC_KINDS:
        deleted[kind] = _delete(kind, cascade)
    for kind in deleted:
        wait_until(f"each {kind} is deleted", _is_gone, kind)
    _scale_controllers(2)
    wait_until("one controller leads", leader)
    for kind, before in deleted.items():
        _created_again(kind, before)
    example.rolled_out(*DEPLOYMENTS)
    example.change_is_served(example.served(), f"down-{cascade}")


def _is_gone(kind: str) -> bool:
    return not example.owned(kind)


def _delete(kind: str, cascade: str) -> dict[str, str]:
    before = example.owned(kind)
    assert before, kind
    kubectl("delete", kind, *before, f"--cascade={cascade}", "--wait=false")
    return before


def _created_again(kind: str, before: dict[str, str]) -> None:
    wait_until(f"{kind} is created again", _are_others, kind, before)


def _are_others(kind: str, before: dict[str, str]) -> bool:
    now = example.owned(kind)
    return now.keys() == before.keys() and not _common(now.values(), before.values())


def _common(first: Iterable[str], second: Iterable[str]) -> set[str]:
    return {*first} & {*second}


def _scale_controllers(replicas: int) -> None:
    words = ("kubectl", "-n", NAMESPACE, "scale", "deployment/gatehouse", f"--replicas={replicas}")
    running.run(*words)
    wait_until(f"{replicas} controllers run", _controllers_run, replicas)


def _controllers_run(replicas: int) -> bool:
    selector = "app.kubernetes.io/name=gatehouse"
    pods = running.kubectl_json("-n", NAMESPACE, "get", "pods", "-l", selector)["items"]
    ready = [
        all(
            status["ready"] for status in pod["status"].get("containerStatuses", [{"ready": False}])
        )
        for pod in pods
    ]
    return ready == [True] * replicas
