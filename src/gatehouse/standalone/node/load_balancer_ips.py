"""Allocation of stable loopback addresses to Services of type LoadBalancer. No I/O."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from kube_base.types.objects import ObjectName

_Network = ipaddress.IPv4Network


class PoolExhausted(Exception):
    """More Services than addresses; the message names the Service without address."""


def assign(
    services: Mapping[ObjectName, Mapping[str, Any]], pool: _Network
) -> dict[ObjectName, str]:
    """Return the address of every Service of type LoadBalancer.

    Addresses in statuses stay, so that no edit of another Service takes one away. Of several
    Services that request an address, the oldest wins. A Service that requests an address gets that
    or none. A new address derives from the Service's name, so that it is the same in a new
    installation.
    Raises PoolExhausted.
    """
    load_balancers = {
        name: service
        for name, service in services.items()
        if service.get("spec", {}).get("type") == "LoadBalancer"
    }
    ordered = sorted(load_balancers, key=lambda name: (_created(load_balancers[name]), name))
    assigned: dict[ObjectName, str] = {}
    taken: set[str] = set()
    for name in sorted(ordered, key=lambda name: not _keeps(load_balancers[name])):
        address = requested(load_balancers[name]) or ingress(load_balancers[name])
        if address and address not in taken and _within(address, pool):
            assigned[name] = address
            taken.add(address)
    for name in ordered:
        if name not in assigned and not requested(load_balancers[name]):
            assigned[name] = _free(name, taken, pool)
            taken.add(assigned[name])
    return assigned


def _keeps(service: Mapping[str, Any]) -> bool:
    """Return whether a Service keeps its address: it has one and requests no other."""
    present = ingress(service)
    return bool(present) and requested(service) in ("", present)


def requested(service: Mapping[str, Any]) -> str:
    """Return the address that a Service requests; empty if any."""
    return str(service.get("spec", {}).get("loadBalancerIP") or "")


def ingress(service: Mapping[str, Any]) -> str:
    """Return the address in a Service's status; empty if none."""
    entries = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    return str(entries[0].get("ip", ""))


def _free(name: ObjectName, taken: Iterable[str], pool: _Network) -> str:
    # Without network and broadcast address.
    usable = pool.num_addresses - 2
    start = int.from_bytes(hashlib.sha256("/".join(name).encode()).digest()[:8], "big") % usable
    for offset in range(usable):
        address = str(pool.network_address + 1 + (start + offset) % usable)
        if address not in taken:
            return address
    raise PoolExhausted(f"no free address in {pool} for Service {'/'.join(name)}")


def _within(address: str, pool: _Network) -> bool:
    try:
        return ipaddress.ip_address(address) in pool
    except ValueError:
        return False


def _created(service: Mapping[str, Any]) -> str:
    return str(service.get("metadata", {}).get("creationTimestamp", ""))
