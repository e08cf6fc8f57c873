"""Defaults and validation of NetworkPolicies."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from kube_api_server.causes import forbidden_cause, invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_base.types import ip_addresses
from kube_base.types.objects import Object


def complete(obj: Object) -> None:
    """Set the policy types: always Ingress, and Egress if there are egress rules."""
    spec = obj.get("spec")
    if isinstance(spec, dict) and not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def check_network_policy(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield violations of ports and peers."""
    spec = obj.get("spec") or {}
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for number, rule in enumerate(spec.get(direction) or ()):
            at = f"spec.{direction}[{number}]"
            for index, port in enumerate(rule.get("ports") or ()):
                yield from _port(port, f"{at}.ports[{index}]")
            for index, peer in enumerate(rule.get(side) or ()):
                yield from _peer(peer, f"{at}.{side}[{index}]")


def _port(port: Object, at: str) -> Iterator[Cause]:
    first, last = port.get("port"), port.get("endPort")
    if isinstance(first, int) and not 1 <= first <= 65535:
        yield invalid_cause(f"{at}.port", first, "must be between 1 and 65535, inclusive")
    if last is None:
        return
    if not isinstance(first, int):
        yield invalid_cause(
            f"{at}.endPort", last, "may not be specified when `port` is not a number"
        )
    elif not first <= last <= 65535:
        yield invalid_cause(f"{at}.endPort", last, "must be greater than or equal to `port`")


def _peer(peer: Object, at: str) -> Iterator[Cause]:
    block = peer.get("ipBlock")
    selects = "podSelector" in peer or "namespaceSelector" in peer
    if block is None:
        if not selects:
            yield required_cause(at, "must specify a peer")
        return
    if selects:
        yield forbidden_cause(at, "may not specify both ipBlock and another peer")
    network = _network(block.get("cidr"))
    if network is None:
        yield invalid_cause(f"{at}.ipBlock.cidr", block.get("cidr"), "must be a valid CIDR value")
    for index, cidr in enumerate(block.get("except") or ()):
        where, left_out = f"{at}.ipBlock.except[{index}]", _network(cidr)
        if left_out is None:
            yield invalid_cause(where, cidr, "must be a valid CIDR value")
        elif network is not None and (left_out == network or not _within(left_out, network)):
            yield invalid_cause(where, cidr, "must be a strict subset of `cidr`")


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _within(inner: _Network, outer: _Network) -> bool:
    if isinstance(inner, ipaddress.IPv4Network) and isinstance(outer, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, ipaddress.IPv6Network) and isinstance(outer, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def _network(text: Any) -> _Network | None:
    if "/" not in str(text):
        return None
    try:
        return ip_addresses.ip_network(text, strict=False)
    except ValueError:
        return None
