"""Fragments of the Envoy configuration: resources."""

from __future__ import annotations

from gatehouse.compiler.backends import fragments
from gatehouse.compiler.backends.fragments import ChangeTracker
from gatehouse.dataplane.xds.resources import Resource, ResourceSet

__all__ = ["ChangeTracker", "Fragment", "Fragments"]

Fragment = fragments.Fragment[Resource]


class Fragments(fragments.Fragments[Resource, ResourceSet]):
    """All fragments of a gateway, and the set of their resources."""

    def __init__(self) -> None:
        super().__init__(ResourceSet())
