"""Validation of the specs of Pods and of their templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube_api_server.causes import duplicate_cause, forbidden_cause, invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_base.types.objects import Object
from kube_base.types.quantities import quantity

_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def check_pod_spec(spec: Object, at: str) -> Iterator[Cause]:
    """Yield violations of volumes and containers."""
    volumes = [volume.get("name") for volume in spec.get("volumes") or ()]
    initial = {container.get("name") for container in spec.get("initContainers") or ()}
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            field = f"{at}.{kind}[{index}]"
            # The schema compares the containers of one list.
            if kind == "containers" and container.get("name") in initial:
                yield duplicate_cause(f"{field}.name", container["name"])
            yield from _container(container, field, volumes)


def _container(container: Mapping[str, Any], field: str, volumes: list[Any]) -> Iterator[Cause]:
    if not container.get("image"):
        yield required_cause(f"{field}.image")
    yield from _resources(container.get("resources") or {}, f"{field}.resources")
    for name in _PROBES:
        if container.get(name) is not None:
            yield from _handler(container[name], f"{field}.{name}")
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            message = f'Not found: "{mount.get("name")}"'
            yield Cause("FieldValueNotFound", message, f"{field}.volumeMounts[{number}].name")


def _handler(probe: Mapping[str, Any], field: str) -> Iterator[Cause]:
    handlers = [name for name in _HANDLERS if probe.get(name) is not None]
    if not handlers:
        yield required_cause(field, "must specify a handler type")
    for name in handlers[1:]:
        yield forbidden_cause(f"{field}.{name}", "may not specify more than 1 handler type")


def _resources(resources: Mapping[str, Any], field: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if quantity(str(amount)) < 0:
                why = "must be greater than or equal to 0"
                yield invalid_cause(f"{field}.{part}[{name}]", amount, why)
    for name, amount in requests.items():
        if name in limits and quantity(str(amount)) > quantity(str(limits[name])):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid_cause(f"{field}.requests", amount, why)
