"""Validation of ResourceSlices, in which drivers publish their devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kube_api_server.builtin import device_fields
from kube_api_server.builtin.node_selectors import check_node_selector
from kube_api_server.causes import check_length, check_number, invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import check_subdomain
from kube_base.types.objects import Object

_MAX_DEVICES = 128
_MAX_POOL_NAME = 253
_MAX_ATTRIBUTES = 32
"""Maximum number of attributes and capacities of a device."""
_MAX_VALUE = 64
_IMMUTABLE = "field is immutable"
_ONE_OF_NODES = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_KINDS_OF_VALUES = ("bool", "int", "string", "version")
_NUMBER = r"(0|[1-9][0-9]*)"
_BEFORE = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_BEFORE}(\.{_BEFORE})*)?(\+{_BUILD}(\.{_BUILD})*)?"
)
_GATED = ("sharedCounters", "perDeviceNodeSelection")
_GATED_OF_DEVICES = (
    *("allNodes", "allowMultipleAllocations", "bindingConditions", "bindingFailureConditions"),
    *("bindsToNode", "consumesCounters", "nodeName", "nodeSelector", "taints"),
)


def complete_slice(obj: Object) -> None:
    """Drop what Kubernetes stores with feature gates that are off by default."""
    spec = obj.get("spec") or {}
    for name in _GATED:
        spec.pop(name, None)
    for device in spec.get("devices") or ():
        for name in _GATED_OF_DEVICES:
            device.pop(name, None)
        for capacity in (device.get("capacity") or {}).values():
            capacity.pop("requestPolicy", None)


def check_slice(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a ResourceSlice. Pool, driver and Node never change."""
    spec = obj.get("spec") or {}
    yield from device_fields.check_driver("spec.driver", spec.get("driver") or "")
    yield from _pool("spec.pool", spec.get("pool") or {})
    if old is not None:
        yield from _unchanged(spec, old.get("spec") or {})
    yield from _nodes("spec", spec)
    devices = spec.get("devices") or []
    yield from check_number("spec.devices", devices, _MAX_DEVICES)
    yield from device_fields.check_names("spec.devices", devices)
    for index, device in enumerate(devices):
        yield from _device(f"spec.devices[{index}]", device)


def _unchanged(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    name, before = ((one.get("pool") or {}).get("name") or "" for one in (spec, old))
    if name != before:
        yield invalid_cause("spec.pool.name", name, _IMMUTABLE)
    for key in ("driver", "nodeName"):
        if spec.get(key) != old.get(key):
            yield invalid_cause(f"spec.{key}", spec.get(key), _IMMUTABLE)


def _pool(field: str, pool: Mapping[str, Any]) -> Iterator[Cause]:
    name = pool.get("name") or ""
    if not name:
        yield required_cause(f"{field}.name")
    else:
        yield from check_length(f"{field}.name", len(name.encode()), _MAX_POOL_NAME)
        for part in name.split("/"):
            yield from check_subdomain(f"{field}.name", part)
    if (count := pool.get("resourceSliceCount") or 0) <= 0:
        yield invalid_cause(f"{field}.resourceSliceCount", count, "must be greater than zero")
    if (generation := pool.get("generation") or 0) < 0:
        why = "must be greater than or equal to zero"
        yield invalid_cause(f"{field}.generation", generation, why)


def _nodes(field: str, spec: Mapping[str, Any]) -> Iterator[Cause]:
    name, selector, every = (spec.get(key) for key in ("nodeName", "nodeSelector", "allNodes"))
    if name == "":
        why = "must be either unset or set to a non-empty string"
        yield invalid_cause(f"{field}.nodeName", name, why)
    elif name is not None:
        yield from check_subdomain(f"{field}.nodeName", name)
    if selector is not None:
        yield from check_node_selector(f"{field}.nodeSelector", selector)
        if len(terms := selector.get("nodeSelectorTerms") or []) != 1:
            why = "must have exactly one node selector term"
            yield invalid_cause(f"{field}.nodeSelector.nodeSelectorTerms", terms, why)
    if every is False:
        yield invalid_cause(f"{field}.allNodes", every, "must be either unset or set to true")
    set_fields = {"nodeName": name, "nodeSelector": selector is not None, "allNodes": every}
    chosen = [f"`{key}`" for key, value in set_fields.items() if value]
    if not chosen:
        yield required_cause(field, _ONE_OF_NODES)
    elif len(chosen) > 1:
        why = f"{_ONE_OF_NODES}, but multiple fields are set"
        yield invalid_cause(field, f"{{{', '.join(chosen)}}}", why)


def _device(field: str, device: Mapping[str, Any]) -> Iterator[Cause]:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (count := len(attributes) + len(capacity)) > _MAX_ATTRIBUTES:
        why = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        yield invalid_cause(field, count, why)
    for name, attribute in attributes.items():
        place = f"{field}.attributes[{name}]"
        yield from device_fields.check_attribute_name(place, name)
        yield from _attribute(place, attribute)
    for name in capacity:
        yield from device_fields.check_attribute_name(f"{field}.capacity[{name}]", name)


def _attribute(field: str, attribute: Mapping[str, Any]) -> Iterator[Cause]:
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None:
        yield from check_length(f"{field}.string", len(text.encode()), _MAX_VALUE)
    if version is not None:
        place = f"{field}.version"
        if not _VERSION.fullmatch(version):
            why = "must be a string compatible with semver.org spec 2.0.0"
            yield invalid_cause(place, version, why)
        yield from check_length(place, len(version.encode()), _MAX_VALUE)
    values = [key for key in _KINDS_OF_VALUES if attribute.get(key) is not None]
    if not values:
        yield required_cause(field, "exactly one value must be specified")
    elif len(values) > 1:
        yield invalid_cause(field, dict(attribute), "exactly one value must be specified")
