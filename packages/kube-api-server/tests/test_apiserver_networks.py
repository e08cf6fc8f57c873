"""Defaults and validation of NetworkPolicies."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.builtin import network_policies


def policy(**spec: Any) -> dict[str, Any]:
    return {"spec": {"podSelector": {}, **spec}}


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ({}, ["Ingress"]),
        ({"ingress": [{}]}, ["Ingress"]),
        ({"egress": [{}]}, ["Ingress", "Egress"]),
        ({"egress": [{}], "policyTypes": ["Egress"]}, ["Egress"]),
    ],
)
def test_policy_types_are_defaulted(spec: dict[str, Any], types: list[str]) -> None:
    network_policy = policy(**spec)
    network_policies.complete(network_policy)
    assert network_policy["spec"]["policyTypes"] == types


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"ports": [{"port": 0}]}, "ports[0].port"),
        ({"ports": [{"port": 65536}]}, "ports[0].port"),
        ({"ports": [{"port": 80, "endPort": 79}]}, "ports[0].endPort"),
        ({"ports": [{"endPort": 80}]}, "ports[0].endPort"),
        ({"ports": [{"port": "http", "endPort": 80}]}, "ports[0].endPort"),
        ({"from": [{}]}, "from[0]"),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.1"}}]}, "from[0].ipBlock.cidr"),
        ({"from": [{"ipBlock": {"cidr": "fd00::/8"}, "podSelector": {}}]}, "from[0]"),
        (
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]},
            "from[0].ipBlock.except[0]",
        ),
        (
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}]},
            "from[0].ipBlock.except[0]",
        ),
        (
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/16"]}}]},
            "from[0].ipBlock.except[0]",
        ),
    ],
)
def test_invalid_network_policy_is_rejected_with_field(rule: dict[str, Any], field: str) -> None:
    [cause] = network_policies.check_network_policy(policy(ingress=[{}, rule]), None)
    assert cause.field == f"spec.ingress[1].{field}"


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"ports": [{"port": 80}, {"port": "http"}, {"protocol": "UDP"}]},
        {"ports": [{"port": 80, "endPort": 80}]},
        {"to": [{"podSelector": {}}, {"namespaceSelector": {}, "podSelector": {}}]},
        {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]},
        {"to": [{"ipBlock": {"cidr": "fd00::/8", "except": ["fd00::/16"]}}]},
    ],
)
def test_network_policy_valid_in_kubernetes_is_accepted(rule: dict[str, Any]) -> None:
    assert not list(network_policies.check_network_policy(policy(egress=[rule]), None))
