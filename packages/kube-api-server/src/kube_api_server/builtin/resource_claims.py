"""Defaults and validation of ResourceClaims, and of templates of them.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube_api_server.builtin import device_fields
from kube_api_server.builtin.device_fields import MAX_ITEMS
from kube_api_server.causes import (
    check_number,
    duplicate_cause,
    forbidden_cause,
    invalid_cause,
    required_cause,
    unsupported_cause,
)
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import (
    check_label_name,
    check_label_value,
    check_subdomain,
)
from kube_base.types.objects import Object

ALL_DEVICES = 32
"""Number of devices that quotas count for a request of all devices."""
_MAX_CHOICES = 8
_MAX_CONSUMERS = 256
_EXACT, _ALL = "ExactCount", "All"
_OPERATORS = ("Equal", "Exists")
_TEMPLATE_METADATA = ("labels", "annotations")
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_ADMIN_RULE = (
    f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
)
_REFERENCE_RULE = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def complete_claim(obj: Object) -> None:
    """Set the default mode and number of devices of each request."""
    _complete(obj.get("spec") or {})


def complete_claim_template(obj: Object) -> None:
    """Set the defaults of the claims of a template."""
    _complete((obj.get("spec") or {}).get("spec") or {})


def _complete(spec: Mapping[str, Any]) -> None:
    for request in _devices(spec).get("requests") or ():
        for part in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if part is not None:
                part.setdefault("allocationMode", _EXACT)
                if part["allocationMode"] == _EXACT:
                    part.setdefault("count", 1)
                # Kubernetes stores it with a feature gate that is off by default.
                part.pop("capacity", None)


def claimed_devices(obj: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield classes and numbers of devices that quotas count for a claim."""
    for request in _devices(obj.get("spec") or {}).get("requests") or ():
        most: dict[str, int] = {}
        for part in request.get("firstAvailable") or (request.get("exactly") or {},):
            name, is_all = part.get("deviceClassName", ""), part.get("allocationMode") == _ALL
            most[name] = max(most.get(name, 0), ALL_DEVICES if is_all else part.get("count", 0))
        yield from most.items()


def check_claim(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a ResourceClaim. Its spec never changes."""
    yield from _unchanged(obj, old)
    if old is None:
        yield from _claim("spec", obj.get("spec") or {})
    yield from _status(obj.get("status") or {}, (old or {}).get("status") or {})


def check_claim_template(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a ResourceClaimTemplate. Its spec never changes."""
    yield from _unchanged(obj, old)
    spec = obj.get("spec") or {}
    metadata, field = spec.get("metadata") or {}, "spec.metadata"
    for key, value in (metadata.get("labels") or {}).items():
        yield from check_label_name(key, f"{field}.labels")
        yield from check_label_value(value, f"{field}.labels")
    for key in metadata.get("annotations") or ():
        yield from check_label_name(key.lower(), f"{field}.annotations")
    for name, value in metadata.items():
        if name not in _TEMPLATE_METADATA and value:
            yield forbidden_cause(f"{field}.{name}", "cannot be set")
    if old is None:
        yield from _claim("spec.spec", spec.get("spec") or {})


def check_admin_access(spec: Object, namespace: Object) -> Iterator[Cause]:
    """Yield the violations of requests of an administrator in the namespace of a claim."""
    if (namespace["metadata"].get("labels") or {}).get(_ADMIN_LABEL) == "true":
        return
    for index, request in enumerate(_devices(spec).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            field = f"spec.devices.requests[{index}].adminAccess"
            yield forbidden_cause(field, _ADMIN_RULE)


def _unchanged(obj: Object, old: Object | None) -> Iterator[Cause]:
    if old is not None and old.get("spec") != obj.get("spec"):
        yield invalid_cause("spec", obj.get("spec"), "field is immutable")


def _claim(at: str, spec: Mapping[str, Any]) -> Iterator[Cause]:
    devices, field = _devices(spec), f"{at}.devices"
    requests = devices.get("requests") or []
    yield from check_number(f"{field}.requests", requests, MAX_ITEMS)
    yield from device_fields.check_names(f"{field}.requests", requests)
    for index, request in enumerate(requests):
        yield from _request(f"{field}.requests[{index}]", request)
    names = _references(requests)
    for name in ("constraints", "config"):
        yield from check_number(f"{field}.{name}", devices.get(name) or [], MAX_ITEMS)
        for index, item in enumerate(devices.get(name) or ()):
            place = f"{field}.{name}[{index}]"
            yield from _check_references(f"{place}.requests", item.get("requests") or [], names)
            check = _constraint if name == "constraints" else device_fields.check_configuration
            yield from check(place, item)


def _devices(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return spec.get("devices") or {}


def _references(requests: list[Object]) -> set[str]:
    names = {str(request.get("name")) for request in requests}
    return names | {
        f"{request.get('name')}/{choice.get('name')}"
        for request in requests
        for choice in request.get("firstAvailable") or ()
    }


def _check_references(field: str, references: list[str], names: set[str]) -> Iterator[Cause]:
    yield from check_number(field, references, MAX_ITEMS)
    for number, reference in enumerate(references):
        if reference not in names:
            yield invalid_cause(f"{field}[{number}]", reference, _REFERENCE_RULE)
        if reference in references[:number]:
            yield duplicate_cause(f"{field}[{number}]", reference)


def _request(field: str, request: Mapping[str, Any]) -> Iterator[Cause]:
    exactly, choices = request.get("exactly"), request.get("firstAvailable") or []
    yield from check_number(f"{field}.firstAvailable", choices, _MAX_CHOICES)
    yield from device_fields.check_names(f"{field}.firstAvailable", choices)
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
    mode, count = request.get("allocationMode"), request.get("count", 0)
    name = request.get("deviceClassName") or ""
    if name:
        yield from check_subdomain(f"{field}.deviceClassName", name)
    else:
        yield required_cause(f"{field}.deviceClassName")
    yield from device_fields.check_selectors(f"{field}.selectors", request.get("selectors") or [])
    if mode == _ALL and count:
        why = f"must not be specified when allocationMode is '{_ALL}'"
        yield invalid_cause(f"{field}.count", count, why)
    elif mode == _EXACT and count <= 0:
        yield invalid_cause(f"{field}.count", count, "must be greater than zero")
    elif mode not in (_ALL, _EXACT):
        yield unsupported_cause(f"{field}.allocationMode", mode, (_ALL, _EXACT))
    for index, toleration in enumerate(request.get("tolerations") or ()):
        yield from _toleration(f"{field}.tolerations[{index}]", toleration)


def _toleration(field: str, toleration: Mapping[str, Any]) -> Iterator[Cause]:
    value, operator = toleration.get("value") or "", toleration.get("operator") or ""
    if key := toleration.get("key"):
        yield from check_label_name(key, f"{field}.key")
    if operator == "Exists":
        if value:
            yield invalid_cause(f"{field}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from check_label_value(value, f"{field}.value")
    elif operator:
        yield unsupported_cause(f"{field}.operator", operator, _OPERATORS)
    else:
        yield required_cause(f"{field}.operator")
    if effect := toleration.get("effect"):
        yield from device_fields.check_effect(f"{field}.effect", effect)


def _constraint(field: str, constraint: Mapping[str, Any]) -> Iterator[Cause]:
    for key in ("matchAttribute", "distinctAttribute"):
        if (name := constraint.get(key)) is not None:
            yield from device_fields.check_attribute_name(f"{field}.{key}", name)
            if name and "/" not in name:
                yield invalid_cause(f"{field}.{key}", name, "must include a domain")
            return
    yield required_cause(f"{field}.matchAttribute")


def _status(status: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    consumers = status.get("reservedFor") or []
    yield from check_number("status.reservedFor", consumers, _MAX_CONSUMERS)
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
