"""Changes of the installation under traffic: releases, replicas, and their time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cluster import example, previous, running
from cluster.conftest import CHART, NAMESPACE, helm, install, leader
from cluster.example import DEPLOYMENTS
from cluster.running import wait_until
from cluster.traffic import requests_to

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_upgrade_from_previous_commit_and_rollback_lose_no_request(urls: tuple[str, ...]) -> None:
    if not previous.sources():
        pytest.skip("needs the history of the sources: git fetch --unshallow")
    images = [f"{key}.tag={previous.TAG}" for key in ("image", *_data_plane_images())]
    install(str(previous.SOURCES / "charts" / "gatehouse"), *images)
    _settled()
    with requests_to(*urls):
        install(CHART)
        _settled()
        example.change_is_served(urls, "upgraded")
        helm("rollback", "gatehouse")
        _settled()
        example.change_is_served(urls, "rolled-back")
        install(CHART)
        _settled()
        example.change_is_served(urls, "upgraded-again")


def _data_plane_images() -> list[str]:
    return [f"dataPlanes.{proxy}" for proxy in ("nginx", "envoy")]


def _settled() -> None:
    """Wait until one controller leads and data planes have the images of its release."""
    wait_until("one controller leads", leader)
    release = running.kubectl_json("-n", NAMESPACE, "get", "deployment", "gatehouse")
    tag = _tag(release)
    for name in DEPLOYMENTS:
        wait_until(f"{name} has the tag {tag}", _has_tag, name, tag)
    example.rolled_out(*DEPLOYMENTS)


def _has_tag(name: str, tag: str) -> bool:
    return _tag(example.objects("deployment", name)) == tag


def _tag(deployment: dict[str, Any]) -> str:
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    return str(container["image"].rpartition(":")[2])


def test_changed_number_of_controllers_loses_no_request(urls: tuple[str, ...]) -> None:
    before = {name: _generation(name) for name in DEPLOYMENTS}
    with requests_to(*urls):
        for replicas in (3, 1, 2):
            install(CHART, f"controller.replicaCount={replicas}")
            wait_until("one controller leads", leader)
            example.change_is_served(urls, f"replicas-{replicas}")
    assert {name: _generation(name) for name in DEPLOYMENTS} == before


def _generation(name: str) -> int:
    return int(example.objects("deployment", name)["metadata"]["generation"])


def test_helm_returns_as_soon_as_the_controllers_are_ready(chart: str) -> None:
    stamp = f"controller.podAnnotations.restarted=at-{int(time.time())}"
    install(CHART, stamp)
    pods = running.kubectl_json(
        "-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/name=gatehouse"
    )["items"]
    new = [pod for pod in pods if "restarted" in pod["metadata"].get("annotations", {})]
    assert len(new) == 2
    for pod in new:
        assert all(status["ready"] for status in pod["status"]["containerStatuses"])
