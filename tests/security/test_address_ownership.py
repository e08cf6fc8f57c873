"""Takeover of the address of another Gateway on one machine.

Who: the owner of an older Gateway. Through: `spec.addresses`, which becomes `loadBalancerIP` of the
Gateway's Service. In a cluster, the load balancer decides.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from gatehouse.standalone.node import load_balancer_ips

POOL = ipaddress.IPv4Network("127.100.0.0/29")
OLD, NEW = ("a", "old"), ("b", "new")


def service(created: str, address: str = "", requested: str = "") -> dict[str, Any]:
    spec = {"type": "LoadBalancer"} | ({"loadBalancerIP": requested} if requested else {})
    ingress = [{"ip": address}] if address else []
    metadata = {"creationTimestamp": created}
    return {"metadata": metadata, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}}


@pytest.mark.parametrize("requested", ["", "127.100.0.3"])
def test_request_of_older_gateway_takes_no_address_in_use(requested: str) -> None:
    """Must hold: the newer Gateway keeps its address, whether it requested it or not."""
    new = service("2026", "127.100.0.3", requested)
    old = service("2025", "127.100.0.2", requested="127.100.0.3")
    assert load_balancer_ips.assign({OLD: old, NEW: new}, POOL) == {NEW: "127.100.0.3"}
    # The address is free when the Gateway is deleted.
    assert load_balancer_ips.assign({OLD: old}, POOL) == {OLD: "127.100.0.3"}


def test_oldest_of_new_requests_gets_the_address() -> None:
    services = {
        OLD: service("2025", requested="127.100.0.3"),
        NEW: service("2026", requested="127.100.0.3"),
    }
    assert load_balancer_ips.assign(services, POOL) == {OLD: "127.100.0.3"}
