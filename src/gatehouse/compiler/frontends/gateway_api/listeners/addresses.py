"""Addresses of a Gateway: requested, and assigned to its Service."""

from __future__ import annotations

from gatehouse.apis import core, gateway
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.dataplane import ip_addresses
from gatehouse.incremental.query import Ask, Key

SUPPORTED_TYPES = ("IPAddress",)
"""Supported types of requested addresses."""


def requested_addresses(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the IP addresses that a Gateway requests, without entries that have no value."""
    gateway_object = ask.read(key)
    if not isinstance(gateway_object, gateway.Gateway):
        return ()
    return tuple(address.value for address in gateway_object.spec.addresses if address.value)


def unsupported_address(ask: Ask, key: Key) -> Finding | None:
    """Return a finding for the first unsupported or invalid address; None if all are valid."""
    gateway_object = ask.read(key)
    for index, address in enumerate(gateway_object.spec.addresses):
        place = f"spec.addresses[{index}]"
        if address.type not in SUPPORTED_TYPES:
            supported = ", ".join(SUPPORTED_TYPES)
            message = f"{place}.type: {address.type} is not supported: must be {supported}"
            return Finding(Reason.UNSUPPORTED_ADDRESS, message)
        if address.routability:
            message = f"{place}.routability: {address.routability} is not supported"
            return Finding(Reason.UNSUPPORTED_ADDRESS, message)
        if address.value and not _is_address(address.value):
            message = f"{place}.value: {address.value!r} must be an IP address"
            return Finding(Reason.UNSUPPORTED_ADDRESS, message)
    return None


def unusable(ask: Ask, key: Key) -> Finding | None:
    """Return a finding for requested addresses that were not assigned; None if all were."""
    assigned = ask(gateway_addresses, key)
    missing = [value for value in ask(requested_addresses, key) if value not in assigned]
    if not missing:
        return None
    message = f"spec.addresses: {', '.join(missing)} not assigned by the load balancer"
    return Finding(Reason.ADDRESS_NOT_USABLE, message)


def gateway_addresses(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the IP addresses of the Service that was provisioned for a Gateway."""
    result: list[str] = []
    for service_key in ask.read(("@service", key[1], key[2])):
        service = ask.read(service_key)
        if isinstance(service, core.Service):
            result += [entry.ip for entry in service.status.load_balancer.ingress if entry.ip]
    return tuple(result)


def bind_address(ask: Ask, key: Key) -> str | None:
    """Return the address to listen on, empty for all; None while none is assigned."""
    if ask(unsupported_address, key) is not None:
        return None
    if ask(settings).bind != "load-balancer":
        return ""
    assigned = ask(gateway_addresses, key)
    return assigned[0] if assigned else None


def _is_address(text: str) -> bool:
    try:
        ip_addresses.ip_address(text)
    except ValueError:
        return False
    return True
