"""The chart in a cluster: controllers and classes."""

from __future__ import annotations

import pytest

from cluster import images, running
from cluster.conftest import NAMESPACE
from cluster.running import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_controllers_are_ready_and_one_leads(chart: str) -> None:
    wait_until("both controllers are ready, and one leads", _are_ready)


def _are_ready() -> bool:
    selector = ("-l", "app.kubernetes.io/name=gatehouse", "--field-selector=status.phase=Running")
    controllers = running.kubectl_json("-n", NAMESPACE, "get", "pods", *selector)["items"]
    labels = [item["metadata"]["labels"] for item in controllers]
    return (
        len(controllers) == 2
        and sum("gatehouse.dev/leader" in own for own in labels) == 1
        and all(
            status["ready"]
            for item in controllers
            for status in item["status"]["containerStatuses"]
        )
    )


def test_both_classes_are_accepted(chart: str) -> None:
    for item in running.kubectl_json("get", "gatewayclasses")["items"]:
        (accepted,) = [c for c in item["status"]["conditions"] if c["type"] == "Accepted"]
        assert accepted["status"] == "True", item["metadata"]["name"]


def test_images_are_small(cluster: None) -> None:
    sizes = images.sizes()
    print(sizes)
    assert {name: size for name, size in sizes.items() if size > images.MAX_MIB[name]} == {}
