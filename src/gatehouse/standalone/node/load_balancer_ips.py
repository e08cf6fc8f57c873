"""Loopback addresses for Services of type LoadBalancer: stable, distinct, of one pool. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

Name = tuple[str, str]
Network = ipaddress.IPv4Network


class PoolExhausted(Exception):
    """More Services than addresses; the message names the Service left without."""


def assign(services: Mapping[Name, Mapping[str, Any]], pool: Network) -> dict[Name, str]:
    """Give every LoadBalancer Service its address.

    What a status already says stays, the older Service first where two say the same. One that asks
    for an address gets that or none. A new address follows from the Service's name, so that it is
    the same after starting from nothing.
    Raises PoolExhausted.
    """
    balanced = {
        name: service
        for name, service in services.items()
        if service.get("spec", {}).get("type") == "LoadBalancer"
    }
    ordered = sorted(balanced, key=lambda name: (_created(balanced[name]), name))
    given: dict[Name, str] = {}
    taken: set[str] = set()
    for name in ordered:
        address = wanted(balanced[name]) or ingress(balanced[name])
        if address and address not in taken and _within(address, pool):
            given[name] = address
            taken.add(address)
    for name in ordered:
        if name not in given and not wanted(balanced[name]):
            given[name] = _free(name, taken, pool)
            taken.add(given[name])
    return given


def wanted(service: Mapping[str, Any]) -> str:
    """Give the address that a Service asks for; empty if any will do."""
    return str(service.get("spec", {}).get("loadBalancerIP") or "")


def ingress(service: Mapping[str, Any]) -> str:
    """Give the address that a Service's status says; empty if none."""
    entries = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    return str(entries[0].get("ip", ""))


def _free(name: Name, taken: Iterable[str], pool: Network) -> str:
    # Neither the network's own address nor the broadcast one.
    usable = pool.num_addresses - 2
    start = int.from_bytes(hashlib.sha256("/".join(name).encode()).digest()[:8], "big") % usable
    for offset in range(usable):
        address = str(pool.network_address + 1 + (start + offset) % usable)
        if address not in taken:
            return address
    raise PoolExhausted(f"no address in {pool} is left for Service {'/'.join(name)}")


def _within(address: str, pool: Network) -> bool:
    try:
        return ipaddress.ip_address(address) in pool
    except ValueError:
        return False


def _created(service: Mapping[str, Any]) -> str:
    return str(service.get("metadata", {}).get("creationTimestamp", ""))
