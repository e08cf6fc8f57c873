"""Objects as the API server admits them, so that tests use only objects that a user could apply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from fakes.kinds import resource_of
from gatehouse.apiserver_extension.extension import bundled
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.objects.crds import served_by
from kube_api_server.objects.registry import Registry
from kube_base.types.resource import Resource

NOW = "2026-01-01T00:00:00Z"

REGISTRY = Registry(
    (*BUILTIN_KINDS, *(resource for one in bundled() for resource in served_by(one)))
)


def admit(resource: Resource, raw: dict[str, Any]) -> None:
    """Default and validate an object as the API server does."""
    served = REGISTRY.of(resource)
    assert not served.compiled.prepare(raw)
    served.complete(raw)
    assert not served.compiled.validate(raw, None)
    assert not list(served.check(raw, None))
    raw.pop("status", None)


def admitted(raw: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the kind and the defaulted and validated object. Change the argument, too."""
    resource = resource_of(raw["kind"])
    status = raw.get("status")
    if resource.namespaced:
        raw["metadata"].setdefault("namespace", "ns")
    admit(resource, raw)
    raw["metadata"].setdefault("generation", 1)
    raw["metadata"].setdefault("creationTimestamp", NOW)
    if status:
        raw["status"] = status
    return resource.kind, raw


def admitted_objects(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a YAML text, defaulted and validated."""
    yield from map(admitted, yaml.load_all(text, yaml.CSafeLoader))
