"""Data planes of both classes in a cluster, under the traffic of a client outside of it."""

from __future__ import annotations

import pytest

from cluster import example, running
from cluster.conftest import NAMESPACE, leader
from cluster.example import DEPLOYMENTS, GATEWAYS, kubectl
from cluster.running import wait_until
from cluster.traffic import requests_to

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_changes_of_a_route_lose_no_request(urls: tuple[str, ...]) -> None:
    with requests_to(*urls):
        for number in range(20):
            example.change_is_served(urls, str(number))


def test_scaling_of_data_planes_loses_no_request(urls: tuple[str, ...]) -> None:
    with requests_to(*urls):
        for replicas in (3, 1, 2):
            spec = {"kubernetes": {"deployment": {"replicas": replicas}}}
            example.patch("gatewayparameters/two", {"spec": spec})
            for name in DEPLOYMENTS:
                wait_until("the Deployment is scaled", _is_scaled, name, replicas)


def _is_scaled(name: str, replicas: int) -> bool:
    """Return whether a Deployment has the ready replicas, and no others."""
    status = example.objects("deployment", name)["status"]
    return bool(status["readyReplicas"] == status["replicas"] == replicas)


def test_deleted_pods_of_data_planes_lose_no_request(urls: tuple[str, ...]) -> None:
    with requests_to(*urls):
        for gateway in GATEWAYS:
            selector = f"gateway.networking.k8s.io/gateway-name={gateway}"
            name = kubectl("get", "pods", "-l", selector, "-o", "name").split()[0]
            kubectl("delete", name, "--wait=true", running.TIMEOUT)
        example.rolled_out(*DEPLOYMENTS)


def test_deleted_controllers_lose_no_request_and_changes_go_on(urls: tuple[str, ...]) -> None:
    with requests_to(*urls):
        first = wait_until("one controller leads", leader)
        running.run(
            "kubectl", "-n", NAMESPACE, "delete", "pod", first, "--grace-period=0", "--force"
        )
        wait_until("another controller leads", _other_leader, first)
        example.change_is_served(urls, "after")


def _other_leader(first: str) -> bool:
    return leader() not in ("", first)
