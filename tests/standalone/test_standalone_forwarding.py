"""To which Pods connections to a Service go, and that the kernel does just that."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import pytest

from gatehouse.standalone.node.service_proxy import Rule, rules, ruleset

BALANCED = "127.9.9.1"


def service(kind: str = "ClusterIP", **spec: Any) -> dict[str, Any]:
    return {
        "spec": {
            "type": kind,
            "clusterIP": "10.96.0.9",
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8000}],
            **spec,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": BALANCED}]}},
    }


def slice_of(*endpoints: tuple[str, bool, bool, bool]) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [address],
                "conditions": {"ready": ready, "serving": serving, "terminating": ending},
            }
            for address, ready, serving, ending in endpoints
        ],
    }


NEW = ("10.9.0.2", True, True, False)
STARTING = ("10.9.0.3", False, False, False)
ENDING = ("10.9.0.4", False, True, True)
ELSEWHERE = ("192.0.2.1", True, True, False)


def found(service: dict[str, Any], *slices: dict[str, Any]) -> tuple[Rule, ...]:
    name = ("default", "web")
    by_name = {("default", f"s{n}"): each for n, each in enumerate(slices)}
    return rules({name: service}, by_name, lambda address: address.startswith("10.9."))


@pytest.mark.parametrize(
    ("endpoints", "targets"),
    [
        ((NEW, STARTING, ENDING), ("10.9.0.2",)),
        ((STARTING, ENDING), ("10.9.0.4",)),
        ((STARTING,), ()),
        ((), ()),
    ],
)
def test_ready_ones_are_asked_then_those_that_end_and_else_nobody(
    endpoints: Any, targets: tuple[str, ...]
) -> None:
    (rule,) = found(service(), slice_of(*endpoints))
    assert rule == Rule("10.96.0.9", 80, "tcp", tuple((each, 8000) for each in targets))


def test_a_load_balancers_address_leads_to_the_same_as_the_clusters() -> None:
    both = found(service("LoadBalancer"), slice_of(NEW), slice_of(NEW, ENDING))
    assert [rule.address for rule in both] == ["10.96.0.9", BALANCED]
    assert {rule.targets for rule in both} == {(("10.9.0.2", 8000),)}


@pytest.mark.parametrize(
    "left", [service(selector=None), service(clusterIP="None"), service(ports=None)]
)
def test_services_without_pods_or_addresses_are_left_alone(left: dict[str, Any]) -> None:
    assert found(left, slice_of(NEW)) == ()


def test_pods_beyond_this_machines_network_are_not_led_to() -> None:
    # Such as a data plane that has the Service's address as its own.
    assert found(service("LoadBalancer"), slice_of(NEW, ELSEWHERE)) == ()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")
def test_the_kernel_takes_the_rules_and_takes_them_again() -> None:
    several = (
        Rule("10.96.0.9", 80, "tcp", (("10.9.0.2", 8000), ("10.9.0.3", 8000))),
        Rule("10.96.0.9", 53, "udp", (("10.9.0.2", 53),)),
        Rule("10.96.0.8", 80, "tcp", ()),
        Rule("10.96.0.8", 53, "udp", ()),
    )
    inside = ["unshare", "--net", "sh", "-c", 'nft -f - && nft list table ip gh"$0"', "t"]
    text = ruleset("ght", "ghbridge", several) + ruleset("ght", "ghbridge", several)
    listed = subprocess.run(inside, input=text, capture_output=True, text=True, check=True).stdout
    assert listed.count(" map {") == 2
    assert "0 : 10.9.0.2 . 8000, 1 : 10.9.0.3 . 8000" in listed
    assert listed.count("reject") == 2
    assert listed.count("jump services") == 2
    emptied = subprocess.run(
        inside, input=text + ruleset("ght", "b", ()), capture_output=True, text=True, check=True
    )
    assert " map {" not in emptied.stdout
