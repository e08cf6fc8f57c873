"""Lookup of the resources of kinds."""

from __future__ import annotations

from functools import cache

from gatehouse.apis import resources
from gatehouse.apis.resources import Resource
from gatehouse.compiler.frontends.gateway_api.extensions.extension_filters import EXTENSION_FILTERS


@cache
def known_resources() -> dict[str, Resource]:
    """Return all resources that Gatehouse uses, by kind."""
    listed = [item for item in vars(resources).values() if isinstance(item, Resource)]
    listed += [kind.resource for kind in EXTENSION_FILTERS.values()]
    return {resource.kind: resource for resource in listed}


def resource_of(kind: str) -> Resource:
    """Return the resource of a kind."""
    return known_resources()[kind]
