"""Validation of EndpointSlices and Endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kube_api_server.causes import duplicate_cause, invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import SUBDOMAIN
from kube_base.types import ip_addresses
from kube_base.types.builtin_types.constraints import DNS_LABEL
from kube_base.types.objects import Object

_FAMILIES = ("IPv4", "IPv6")
_LABEL = re.compile(DNS_LABEL)


def endpoint_slice(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of addresses, ports, and of the immutable address family."""
    family = obj.get("addressType")
    for index, endpoint in enumerate(obj.get("endpoints") or ()):
        at = f"endpoints[{index}]"
        addresses = endpoint.get("addresses") or ()
        for number, address in enumerate(addresses):
            field = f"{at}.addresses[{number}]"
            if family in _FAMILIES:
                yield from _address(field, address, family)
            elif family == "FQDN" and not SUBDOMAIN.fullmatch(address):
                yield invalid_cause(field, address, "must be a domain name")
        name = endpoint.get("hostname")
        if name and not _is_label(name):
            yield invalid_cause(f"{at}.hostname", name, "must be a DNS label")
    yield from _ports(obj)
    if old is not None and family != old.get("addressType"):
        yield invalid_cause("addressType", family, "field is immutable")


def check_endpoints(obj: Object, _old: Object | None) -> Iterator[Cause]:
    """Yield violations of the addresses and ports of Endpoints."""
    for index, subset in enumerate(obj.get("subsets") or ()):
        at = f"subsets[{index}]"
        lists = {name: subset.get(name) or () for name in ("addresses", "notReadyAddresses")}
        if not any(lists.values()):
            yield required_cause(at, "must specify `addresses` or `notReadyAddresses`")
        for name, addresses in lists.items():
            for number, address in enumerate(addresses):
                field, text = f"{at}.{name}[{number}].ip", str(address.get("ip") or "")
                family = "IPv6" if ":" in text else "IPv4"
                yield from _address(field, text, family)
        ports = subset.get("ports") or ()
        for number, port in enumerate(ports):
            name, field = port.get("name") or "", f"{at}.ports[{number}]"
            if len(ports) > 1 and not name:
                yield required_cause(f"{field}.name")
            if name and not _is_label(name):
                yield invalid_cause(f"{field}.name", name, "must be a DNS label")
            if not 0 < (port.get("port") or 0) < 65536:
                why = "must be between 1 and 65535, inclusive"
                yield invalid_cause(f"{field}.port", port.get("port") or 0, why)


def _address(field: str, text: str, family: str) -> Iterator[Cause]:
    """Yield why an address is none of an endpoint.

    Loopback addresses are valid, other than in Kubernetes: on one machine backends listen there.
    """
    try:
        address = ip_addresses.ip_address(text)
    except ValueError:
        yield invalid_cause(field, text, "must be a valid IP address")
        return
    if f"IPv{address.version}" != family:
        yield invalid_cause(field, text, f"must be an {family} address")
    elif address.is_unspecified:
        yield invalid_cause(field, text, "may not be unspecified (0.0.0.0 or ::)")
    elif address.is_link_local:
        yield invalid_cause(field, text, "may not be in the link-local range")
    elif address.is_multicast and (address.version == 6 or text.startswith("224.0.0.")):
        yield invalid_cause(field, text, "may not be in the link-local multicast range")


def _ports(obj: Object) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(obj.get("ports") or ()):
        name, field = port.get("name") or "", f"ports[{index}].name"
        if name and not _is_label(name):
            yield invalid_cause(field, name, "must be a DNS label")
        if name in names:
            yield duplicate_cause(field, name)
        names.add(name)


def _is_label(name: str) -> bool:
    return len(name) <= 63 and _LABEL.search(name) is not None
