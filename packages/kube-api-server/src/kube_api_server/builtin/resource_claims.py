"""Defaults and validation of ResourceClaims.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation
Expressions of selectors are not compiled: no scheduler of this server evaluates them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kube_api_server.causes import (
    forbidden_cause,
    invalid_cause,
    required_cause,
    unsupported_cause,
)
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import (
    NAME_LABEL,
    NAME_LABEL_RULE,
    SUBDOMAIN,
    SUBDOMAIN_RULE,
)
from kube_base.types.objects import Object

ALL_DEVICES = 32
"""Number of devices that quotas count for a request of all devices."""
_MAX_ITEMS = 32
_MAX_CHOICES = 8
_MAX_CONSUMERS = 256
_EXACT, _ALL = "ExactCount", "All"
_QUALIFIED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE_RULE = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def complete_claim(obj: Object) -> None:
    """Set the default mode and number of devices of each request."""
    for request in _devices(obj).get("requests") or ():
        for part in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if part is not None:
                part.setdefault("allocationMode", _EXACT)
                if part["allocationMode"] == _EXACT:
                    part.setdefault("count", 1)


def claimed_devices(obj: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield classes and numbers of devices that quotas count for a claim."""
    for request in _devices(obj).get("requests") or ():
        most: dict[str, int] = {}
        for part in request.get("firstAvailable") or (request.get("exactly") or {},):
            name, is_all = part.get("deviceClassName", ""), part.get("allocationMode") == _ALL
            most[name] = max(most.get(name, 0), ALL_DEVICES if is_all else part.get("count", 0))
        yield from most.items()


def check_claim(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a ResourceClaim. Its spec never changes."""
    devices, field = _devices(obj), "spec.devices"
    if old is not None and old.get("spec") != obj.get("spec"):
        yield invalid_cause("spec", obj.get("spec"), "field is immutable")
    requests = devices.get("requests") or []
    yield from _too_many(f"{field}.requests", requests, _MAX_ITEMS)
    yield from _named(f"{field}.requests", requests)
    for index, request in enumerate(requests):
        yield from _request(f"{field}.requests[{index}]", request)
    names = _references(requests)
    for name in ("constraints", "config"):
        yield from _too_many(f"{field}.{name}", devices.get(name) or [], _MAX_ITEMS)
        for index, item in enumerate(devices.get(name) or ()):
            place = f"{field}.{name}[{index}]"
            for number, reference in enumerate(item.get("requests") or ()):
                if reference not in names:
                    yield invalid_cause(f"{place}.requests[{number}]", reference, _REFERENCE_RULE)
            yield from (_constraint if name == "constraints" else _configuration)(place, item)
    yield from _status(obj.get("status") or {}, (old or {}).get("status") or {})


def _devices(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return (obj.get("spec") or {}).get("devices") or {}


def _references(requests: list[Object]) -> set[str]:
    names = {str(request.get("name")) for request in requests}
    return names | {
        f"{request.get('name')}/{choice.get('name')}"
        for request in requests
        for choice in request.get("firstAvailable") or ()
    }


def _too_many(field: str, items: list[Any], most: int) -> Iterator[Cause]:
    if len(items) > most:
        message = f"Too many: {len(items)}: must have at most {most} items"
        yield Cause("FieldValueTooMany", message, field)


def _named(field: str, items: list[Object]) -> Iterator[Cause]:
    """Yield the violations of names of requests, which are unique labels."""
    names: set[str] = set()
    for index, item in enumerate(items):
        name, place = item.get("name"), f"{field}[{index}].name"
        if name is None:
            continue
        if not NAME_LABEL.fullmatch(name) or len(name) > 63:
            yield invalid_cause(place, name, NAME_LABEL_RULE)
        if name in names:
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', place)
        names.add(name)


def _request(field: str, request: Mapping[str, Any]) -> Iterator[Cause]:
    exactly, choices = request.get("exactly"), request.get("firstAvailable") or []
    yield from _too_many(f"{field}.firstAvailable", choices, _MAX_CHOICES)
    yield from _named(f"{field}.firstAvailable", choices)
    for index, choice in enumerate(choices):
        yield from _device_request(f"{field}.firstAvailable[{index}]", choice)
    if exactly is not None:
        yield from _device_request(f"{field}.exactly", exactly)
    why = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not choices:
        yield required_cause(field, why)
    elif exactly is not None and choices:
        yield invalid_cause(field, None, f"{why}, but multiple fields are set")


def _device_request(field: str, request: Mapping[str, Any]) -> Iterator[Cause]:
    name, mode = request.get("deviceClassName"), request.get("allocationMode")
    count = request.get("count", 0)
    if name == "":
        yield required_cause(f"{field}.deviceClassName")
    elif name is not None and not SUBDOMAIN.fullmatch(name):
        yield invalid_cause(f"{field}.deviceClassName", name, SUBDOMAIN_RULE)
    selectors = request.get("selectors") or []
    yield from _too_many(f"{field}.selectors", selectors, _MAX_ITEMS)
    for index, selector in enumerate(selectors):
        if selector.get("cel") is None:
            yield required_cause(f"{field}.selectors[{index}].cel")
    if mode == _ALL and count:
        why = f"must not be specified when allocationMode is '{_ALL}'"
        yield invalid_cause(f"{field}.count", count, why)
    elif mode == _EXACT and count <= 0:
        yield invalid_cause(f"{field}.count", count, "must be greater than zero")
    elif mode not in (_ALL, _EXACT):
        yield unsupported_cause(f"{field}.allocationMode", mode, (_ALL, _EXACT))


def _constraint(field: str, constraint: Mapping[str, Any]) -> Iterator[Cause]:
    attribute = constraint.get("matchAttribute")
    if attribute is None:
        yield required_cause(f"{field}.matchAttribute")
    elif not _QUALIFIED.fullmatch(attribute):
        why = "must be a domain and an identifier, separated by a slash"
        yield invalid_cause(f"{field}.matchAttribute", attribute, why)


def _configuration(field: str, configuration: Mapping[str, Any]) -> Iterator[Cause]:
    opaque = configuration.get("opaque")
    if opaque is None:
        yield required_cause(f"{field}.opaque")
    elif opaque.get("driver") == "":
        yield required_cause(f"{field}.opaque.driver")


def _status(status: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    consumers = status.get("reservedFor") or []
    yield from _too_many("status.reservedFor", consumers, _MAX_CONSUMERS)
    for index, consumer in enumerate(consumers):
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                yield required_cause(f"status.reservedFor[{index}].{name}")
    allocation = status.get("allocation")
    if consumers and allocation is None:
        why = "may not be specified when `allocated` is not set"
        yield forbidden_cause("status.reservedFor", why)
    if old.get("allocation") and allocation and allocation != old["allocation"]:
        yield invalid_cause("status.allocation", allocation, "field is immutable")
