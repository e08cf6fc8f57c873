"""Validation of DeviceClasses."""

from __future__ import annotations

from collections.abc import Iterator

from kube_api_server.builtin import device_fields
from kube_api_server.causes import check_number
from kube_api_server.errors import Cause
from kube_base.types.objects import Object


def complete_device_class(obj: Object) -> None:
    """Drop what Kubernetes stores with a feature gate that is off by default."""
    (obj.get("spec") or {}).pop("extendedResourceName", None)


def check_device_class(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a DeviceClass. Selectors of an earlier version may be invalid."""
    spec, before = obj.get("spec") or {}, (old or {}).get("spec") or {}
    selectors = spec.get("selectors") or []
    if selectors != before.get("selectors"):
        yield from device_fields.check_selectors("spec.selectors", selectors)
    configurations = spec.get("config") or []
    yield from check_number("spec.config", configurations, device_fields.MAX_ITEMS)
    for index, configuration in enumerate(configurations):
        yield from device_fields.check_configuration(f"spec.config[{index}]", configuration)
