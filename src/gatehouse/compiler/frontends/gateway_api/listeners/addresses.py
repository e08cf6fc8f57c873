"""The addresses of a Gateway: what it asks for, and what its Service was given."""

from __future__ import annotations

import ipaddress

from gatehouse.apis import core, gateway
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.incremental.query import Ask, Key

SERVED = ("IPAddress",)
"""The types of addresses that can be asked for."""


def asked(ask: Ask, key: Key) -> tuple[str, ...]:
    """Give the IP addresses that a Gateway asks for; one without a value leaves the choice."""
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return ()
    return tuple(each.value for each in found.spec.addresses if each.value)


def unsupported(ask: Ask, key: Key) -> Finding | None:
    """Say which address cannot be asked for at all."""
    found = ask.read(key)
    for index, each in enumerate(found.spec.addresses):
        place = f"spec.addresses[{index}]"
        if each.type not in SERVED:
            message = f"{place}: type {each.type} is not served; {', '.join(SERVED)} is"
            return Finding(Reason.UNSUPPORTED_ADDRESS, message)
        if each.value and not _is_address(each.value):
            message = f"{place}: {each.value} is no IP address"
            return Finding(Reason.UNSUPPORTED_ADDRESS, message)
    return None


def unusable(ask: Ask, key: Key) -> Finding | None:
    """Say which address was asked for and not given."""
    given = ask(gateway_addresses, key)
    missing = [value for value in ask(asked, key) if value not in given]
    if not missing:
        return None
    message = f"spec.addresses: {', '.join(missing)} cannot be had from this load balancer"
    return Finding(Reason.ADDRESS_NOT_USABLE, message)


def gateway_addresses(ask: Ask, key: Key) -> tuple[str, ...]:
    """Give the addresses of the Service that was provisioned for a Gateway."""
    found: list[str] = []
    for service_key in ask.read(("@service", key[1], key[2])):
        service = ask.read(service_key)
        if isinstance(service, core.Service):
            found += [entry.ip for entry in service.status.load_balancer.ingress if entry.ip]
    return tuple(found)


def bind_address(ask: Ask, key: Key) -> str | None:
    """Give the address to listen on, empty for every one; None while there is none."""
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
