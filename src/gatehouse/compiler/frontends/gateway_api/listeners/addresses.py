"""Addresses of a Gateway: requested, and assigned to its Service."""

from __future__ import annotations

import ipaddress

from gatehouse.apis import core, gateway
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.incremental.query import Ask, Key

SUPPORTED_TYPES = ("IPAddress",)
"""Supported types of requested addresses."""


def requested_addresses(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the IP addresses that a Gateway requests, without entries that have no value."""
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return ()
    return tuple(each.value for each in found.spec.addresses if each.value)


def unsupported(ask: Ask, key: Key) -> Finding | None:
    """Return a finding for the first unsupported or invalid address; None if all are valid."""
    found = ask.read(key)
    for index, each in enumerate(found.spec.addresses):
        place = f"spec.addresses[{index}]"
        if each.type not in SUPPORTED_TYPES:
            message = (
                f"{place}.type: {each.type} is not supported: must be {', '.join(SUPPORTED_TYPES)}"
            )
            return Finding(Reason.UNSUPPORTED_ADDRESS, message)
        if each.value and not _is_address(each.value):
            message = f"{place}.value: {each.value!r} must be an IP address"
            return Finding(Reason.UNSUPPORTED_ADDRESS, message)
    return None


def unusable(ask: Ask, key: Key) -> Finding | None:
    """Return a finding for requested addresses that were not assigned; None if all were."""
    given = ask(gateway_addresses, key)
    missing = [value for value in ask(requested_addresses, key) if value not in given]
    if not missing:
        return None
    message = f"spec.addresses: {', '.join(missing)} not assigned by the load balancer"
    return Finding(Reason.ADDRESS_NOT_USABLE, message)


def gateway_addresses(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the IP addresses of the Service that was provisioned for a Gateway."""
    found: list[str] = []
    for service_key in ask.read(("@service", key[1], key[2])):
        service = ask.read(service_key)
        if isinstance(service, core.Service):
            found += [entry.ip for entry in service.status.load_balancer.ingress if entry.ip]
    return tuple(found)


def bind_address(ask: Ask, key: Key) -> str | None:
    """Return the address to listen on, empty for all; None while none is assigned."""
    if ask(unsupported, key) is not None:
        return None
    if ask(settings, "").bind != "load-balancer":
        return ""
    given = ask(gateway_addresses, key)
    return given[0] if given else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
