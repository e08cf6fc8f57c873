"""Addresses of a Gateway: requested, and assigned to its Service.

Each entry of ``spec.addresses`` gets an address of its own. Entries with the routability
``Cluster`` get cluster IPs of the Service (Gateway API 1.7, GEP-5093).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gatehouse.apis import core, gateway
from gatehouse.compiler.frontends.gateway_api import crd_version
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.incremental.query import Ask, Key
from kube_base.types import ip_addresses

SUPPORTED_TYPES = ("IPAddress",)
"""Supported types of requested addresses."""

_SUPPORTED_ROUTABILITY = (*gateway.EXPOSED_ROUTABILITY, gateway.CLUSTER_ROUTABILITY)


class AssignedAddress(msgspec.Struct, frozen=True):
    """An IP address of a Gateway."""

    value: str
    routability: str | None = None
    """Routability that the status reports; None if the CRD does not have the field."""


class AddressAssignment(msgspec.Struct, frozen=True):
    """Addresses of a Gateway, and findings about requests for others."""

    assigned: tuple[AssignedAddress, ...]
    unusable: Finding | None = None
    """Finding that prevents ``Programmed``: about addresses that the load balancer did not assign,
    or about a Gateway that gets no address.
    """
    finding: Finding | None = None
    """Finding about all requests; None while the Service may still get an address."""


def unsupported_address(ask: Ask, key: Key) -> Finding | None:
    """Return a finding for the first unsupported or invalid address; None if all are valid."""
    gateway_object = ask.read(key)
    for index, address in enumerate(gateway_object.spec.addresses):
        place = f"spec.addresses[{index}]"
        if address.type not in SUPPORTED_TYPES:
            supported = ", ".join(SUPPORTED_TYPES)
            message = f"{place}.type: {address.type} is not supported: must be {supported}"
            return Finding(Reason.UNSUPPORTED_ADDRESS, message)
        if address.value and not _is_address(address.value):
            message = f"{place}.value: {address.value!r} must be an IP address"
            return Finding(Reason.UNSUPPORTED_ADDRESS, message)
    return None


def gateway_addresses(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the IP addresses that load balancers assigned to the Service of a Gateway."""
    return tuple(
        entry.ip
        for service in _services(ask, key)
        for entry in service.status.load_balancer.ingress
        if entry.ip
    )


def address_assignment(ask: Ask, key: Key) -> AddressAssignment:
    """Return the addresses for the status of a Gateway.

    Without requests these are all of a load balancer, or the cluster IPs of another Service.
    """
    pool = _pool(ask, key)
    entries = ask.read(key).spec.addresses
    if not entries:
        assigned = tuple(pool.defaults())
        return _assignment(assigned, (), pending=pool.waits and not assigned)
    results = {}
    for index in sorted(range(len(entries)), key=lambda index: not entries[index].value):
        results[index] = pool.take(entries[index], f"spec.addresses[{index}]")
    ordered = [results[index] for index in range(len(entries))]
    assigned = tuple(result for result in ordered if isinstance(result, AssignedAddress))
    refusals = [result for result in ordered if isinstance(result, str)]
    usable = {address.value for address in assigned}
    missing = [
        entry.value
        for entry in entries
        if entry.routability in gateway.EXPOSED_ROUTABILITY and entry.value not in {"", *usable}
    ]
    return _assignment(assigned, refusals, missing, pending=None in ordered)


def _assignment(
    assigned: tuple[AssignedAddress, ...],
    refusals: Sequence[str],
    missing: Sequence[str] = (),
    *,
    pending: bool,
) -> AddressAssignment:
    message = "; ".join(refusals)
    unusable = finding = None
    if missing:
        text = f"spec.addresses: {', '.join(missing)} not assigned by the load balancer"
        unusable = Finding(Reason.ADDRESS_NOT_USABLE, text)
    elif refusals and not assigned and not pending:
        unusable = Finding(Reason.ADDRESS_NOT_ASSIGNED, message)
    if pending:
        return AddressAssignment(assigned, unusable)
    if not refusals:
        finding = Finding(Reason.ADDRESSES_ASSIGNED, "all addresses are assigned")
    elif assigned:
        finding = Finding(Reason.ADDRESSES_PARTIALLY_ASSIGNED, message)
    else:
        finding = Finding(Reason.ADDRESSES_NOT_ASSIGNED, message)
    return AddressAssignment(assigned, unusable, finding)


def has_cluster_ips(ask: Ask) -> bool:
    """Return whether cluster IPs of Services lead to data planes. On one machine none do."""
    return ask(settings).bind != "load-balancer"


class _Pool(msgspec.Struct):
    """Addresses of a Service that no entry of ``spec.addresses`` has."""

    external: list[str]
    """Addresses of load balancers."""
    internal: list[str]
    """Cluster IPs."""
    waits: bool
    """True if a load balancer assigns addresses, or there is no Service yet."""
    has_routability: bool
    """True if the status reports the routability of addresses."""

    def defaults(self) -> Iterator[AssignedAddress]:
        """Yield the addresses that are used without requests."""
        for value in self.external:
            yield self._reported(value, "")
        for value in () if self.waits or self.external else self.internal:
            yield self._reported(value, gateway.CLUSTER_ROUTABILITY)

    def take(self, entry: gateway.GatewayAddress, place: str) -> AssignedAddress | str | None:
        """Return the address of an entry, or why it gets none; None: not yet."""
        if entry.routability not in _SUPPORTED_ROUTABILITY:
            return f"{place}.routability: {entry.routability} is not supported"
        if entry.routability == gateway.CLUSTER_ROUTABILITY:
            return self._internal(entry, place)
        if value := _taken(self.external, entry.value):
            return self._reported(value, entry.routability)
        if not self.waits and (value := _taken(self.internal, entry.value)):
            return self._reported(value, entry.routability or gateway.CLUSTER_ROUTABILITY)
        if entry.value:
            return f"{place}.value: {entry.value} is not assigned by the load balancer"
        return None if self.waits else f"{place}: the Service has no further address"

    def _internal(self, entry: gateway.GatewayAddress, place: str) -> AssignedAddress | str:
        if value := _taken(self.internal, entry.value):
            return self._reported(value, gateway.CLUSTER_ROUTABILITY)
        if entry.value:
            return f"{place}.value: {entry.value} is not the cluster IP of the Service"
        return f"{place}.routability: the Service has no further cluster IP"

    def _reported(self, value: str, routability: str) -> AssignedAddress:
        return AssignedAddress(value, routability if self.has_routability else None)


def _pool(ask: Ask, key: Key) -> _Pool:
    external = list(ask(gateway_addresses, key))
    pool = _Pool(external, [], waits=True, has_routability=ask(crd_version.has_later_fields))
    for service in _services(ask, key):
        pool.waits = service.spec.type == "LoadBalancer"
        if has_cluster_ips(ask):
            ips = service.spec.cluster_ips or (service.spec.cluster_ip,)
            pool.internal += [ip for ip in ips if ip not in ("", "None")]
    return pool


def _taken(values: list[str], requested: str) -> str:
    """Remove an address from a list and return it; empty if the list does not have it."""
    value = requested or next(iter(values), "")
    if value not in values:
        return ""
    values.remove(value)
    return value


def bind_address(ask: Ask, key: Key) -> str | None:
    """Return the address to listen on, empty for all; None while none is assigned."""
    entries = ask.read(key).spec.addresses
    if ask(unsupported_address, key) is not None or (
        entries and all(entry.routability not in _SUPPORTED_ROUTABILITY for entry in entries)
    ):
        return None
    if has_cluster_ips(ask):
        return ""
    assigned = ask(gateway_addresses, key)
    return assigned[0] if assigned else None


def _services(ask: Ask, key: Key) -> Iterator[core.Service]:
    """Yield the Service that was provisioned for a Gateway."""
    for service_key in ask.read(("@service", key[1], key[2])):
        service = ask.read(service_key)
        if isinstance(service, core.Service):
            yield service


def _is_address(text: str) -> bool:
    try:
        ip_addresses.ip_address(text)
    except ValueError:
        return False
    return True
