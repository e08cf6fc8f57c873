"""Requested addresses of Gateways, those of their Services, and the routability of each (GEP-5093).

The Service of the Gateway has the cluster IP 10.96.0.7.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.compiled_objects import engine_with, merged_statuses
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.translate import compile_gateway

KEY = ("Gateway", "ns", "gw")
SENTINEL = "testing.x-k8s.io/sentinel"
UNKNOWN = "example.com/Intranet"

Assigned = tuple[list[tuple[str, str]], str, str]
"""Addresses with their routability, and the reasons of AddressesAssigned and Programmed."""


def service(kind: str, *ips: str, cluster_ips: tuple[str, ...] = ("10.96.0.7",)) -> dict[str, Any]:
    owner = {"kind": "Gateway", "name": KEY[2], "controller": True}
    return {
        "metadata": {
            "name": "gw-nginx",
            "namespace": KEY[1],
            "labels": {"app.kubernetes.io/managed-by": "gatehouse"},
            "ownerReferences": [owner],
        },
        "spec": {"type": kind, "clusterIP": cluster_ips[0], "clusterIPs": list(cluster_ips)},
        "status": {"loadBalancer": {"ingress": [{"ip": ip} for ip in ips]}},
    }


def entry(value: str = "", routability: str = "") -> dict[str, str]:
    return {"type": "IPAddress", "value": value, "routability": routability}


def assigned(
    addresses: list[dict[str, str]],
    *services: dict[str, Any],
    bind: Any = "any",
    versions: gateway_api.CRDVersions | None = None,
) -> tuple[dict[str, Any], bool]:
    """Return the status of a Gateway, and whether its listener is served."""
    class_ = {"metadata": {"name": "c"}, "spec": {"controllerName": "gatehouse.dev/nginx"}}
    gateway = {
        "metadata": {"name": KEY[2], "namespace": KEY[1]},
        "spec": {
            "gatewayClassName": "c",
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            "addresses": addresses,
        },
    }
    objects: list[tuple[str, dict[str, Any]]] = [("GatewayClass", class_), ("Gateway", gateway)]
    objects += [("Service", one) for one in services]
    engine = engine_with(objects, gateway_api.ControllerSettings(bind=bind))
    if versions is not None:
        engine.commit({gateway_api.CRD_VERSIONS_KEY: versions})
    with engine.compile() as ask:
        result = compile_gateway(ask, KEY)
        status = json.loads(dict(merged_statuses(ask))[KEY])
        return status, result is not None and bool(result.listeners)


def summary(status: dict[str, Any]) -> Assigned:
    reasons = {one["type"]: one["reason"] for one in status["conditions"]}
    addresses = [(one["value"], one["routability"]) for one in status["addresses"]]
    return addresses, reasons.get("AddressesAssigned", ""), reasons["Programmed"]


BALANCED = service("LoadBalancer", "192.0.2.1", "192.0.2.2")


@pytest.mark.parametrize(
    ("requested", "provisioned", "expected"),
    [
        # Without requests: all addresses of the load balancer, or the cluster IP.
        ([], BALANCED, ([("192.0.2.1", ""), ("192.0.2.2", "")], "AddressesAssigned", "Pending")),
        ([], service("LoadBalancer"), ([], "", "Pending")),
        ([], service("ClusterIP"), ([("10.96.0.7", "Cluster")], "AddressesAssigned", "Pending")),
        ([], service("NodePort"), ([("10.96.0.7", "Cluster")], "AddressesAssigned", "Pending")),
        # "exactly one distinct matching address for every satisfied spec entry"
        ([entry()], BALANCED, ([("192.0.2.1", "")], "AddressesAssigned", "Pending")),
        (
            [entry(), entry(routability="Cluster")],
            BALANCED,
            ([("192.0.2.1", ""), ("10.96.0.7", "Cluster")], "AddressesAssigned", "Pending"),
        ),
        (
            [entry(), entry("192.0.2.1")],
            BALANCED,
            ([("192.0.2.2", ""), ("192.0.2.1", "")], "AddressesAssigned", "Pending"),
        ),
        # "An unset or empty request matches either an explicit empty value or `Cluster`."
        (
            [entry()],
            service("ClusterIP"),
            ([("10.96.0.7", "Cluster")], "AddressesAssigned", "Pending"),
        ),
        (
            [entry(routability="Cluster")] * 2,
            service("ClusterIP", cluster_ips=("10.96.0.7", "fd00::7")),
            ([("10.96.0.7", "Cluster"), ("fd00::7", "Cluster")], "AddressesAssigned", "Pending"),
        ),
        (
            [entry("10.96.0.7", "Cluster")],
            service("ClusterIP"),
            ([("10.96.0.7", "Cluster")], "AddressesAssigned", "Pending"),
        ),
        (
            [entry(routability=SENTINEL)],
            BALANCED,
            ([("192.0.2.1", SENTINEL)], "AddressesAssigned", "Pending"),
        ),
        # "MUST be omitted until the controller has reconciled address assignment"
        ([entry()], service("LoadBalancer"), ([], "", "Pending")),
        # "some, but not all": the others are served.
        (
            [entry(), entry("10.96.0.9", "Cluster")],
            BALANCED,
            ([("192.0.2.1", "")], "PartiallyAssigned", "Pending"),
        ),
        (
            [entry(), entry(routability=UNKNOWN)],
            BALANCED,
            ([("192.0.2.1", "")], "PartiallyAssigned", "Pending"),
        ),
        # A load balancer's address that was requested and not assigned makes it unusable.
        (
            [entry("192.0.2.1"), entry("192.0.2.9")],
            BALANCED,
            ([("192.0.2.1", "")], "PartiallyAssigned", "AddressNotUsable"),
        ),
        # "no entries can be satisfied"
        (
            [entry("10.96.0.9", "Cluster")],
            service("ClusterIP"),
            ([], "NotAssigned", "AddressNotAssigned"),
        ),
        (
            [entry(routability=UNKNOWN)],
            service("ClusterIP"),
            ([], "NotAssigned", "AddressNotAssigned"),
        ),
    ],
)
def test_each_requested_address_is_assigned_or_refused(
    requested: list[dict[str, str]], provisioned: dict[str, Any], expected: Assigned
) -> None:
    status, _ = assigned(requested, provisioned)
    assert summary(status) == expected


def test_messages_name_entries_that_get_no_address() -> None:
    requested = [entry(), entry("10.96.0.9", "Cluster"), entry(routability=UNKNOWN)]
    status, served = assigned(requested, BALANCED)
    (condition,) = [one for one in status["conditions"] if one["type"] == "AddressesAssigned"]
    assert condition["message"] == (
        "spec.addresses[1].value: 10.96.0.9 is not the cluster IP of the Service; "
        "spec.addresses[2].routability: example.com/Intranet is not supported"
    )
    assert served


def test_gateway_with_unsupported_routability_only_is_not_served() -> None:
    """An implementation "MUST NOT satisfy a Cluster or prefixed entry with an address of a
    different routability"."""
    _, served = assigned([entry(routability=UNKNOWN)], BALANCED)
    assert not served


def test_one_machine_has_no_cluster_ips() -> None:
    requested = [entry(), entry(routability="Cluster")]
    status, served = assigned(requested, BALANCED, bind="load-balancer")
    assert summary(status) == ([("192.0.2.1", "")], "PartiallyAssigned", "Pending")
    assert served
    status, served = assigned(requested[1:], service("ClusterIP"), bind="load-balancer")
    assert summary(status) == ([], "NotAssigned", "AddressNotAssigned")
    assert not served


@pytest.mark.parametrize(
    "versions",
    [
        gateway_api.CRDVersions((("gateways.gateway.networking.k8s.io", "v1.6.1"),)),
        gateway_api.CRDVersions((("gateways.gateway.networking.k8s.io", "v1.7.0"),), False),
    ],
)
def test_routability_is_reported_only_where_the_crd_has_it(
    versions: gateway_api.CRDVersions,
) -> None:
    """An API server drops a field that it does not know, which would be written forever."""
    status, _ = assigned([], BALANCED, versions=versions)
    assert status["addresses"][0] == {"type": "IPAddress", "value": "192.0.2.1"}
