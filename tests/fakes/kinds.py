"""Lookup of the resources of kinds, and of the definitions that the chart does not bring."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from gatehouse.apis import resources
from gatehouse.apiserver_extension.extension import bundled
from gatehouse.compiler.frontends.gateway_api.extensions.extension_filters import EXTENSION_FILTERS
from kube_base.types.resource import Resource


@cache
def known_resources() -> dict[str, Resource]:
    """Return all resources that Gatehouse uses, by kind."""
    listed = [item for item in vars(resources).values() if isinstance(item, Resource)]
    listed += [kind.resource for kind in EXTENSION_FILTERS.values()]
    return {resource.kind: resource for resource in listed}


def resource_of(kind: str) -> Resource:
    """Return the resource of a kind."""
    return known_resources()[kind]


def gateway_api_definitions() -> Iterator[dict[str, Any]]:
    """Yield the CustomResourceDefinitions of Gateway API's experimental channel and its Inference
    Extension."""
    for definition in bundled():
        if definition["spec"]["group"].startswith(("gateway.networking.", "inference.")):
            yield definition
