"""Parts of what an Envoy has: resources."""

from __future__ import annotations

from gatehouse.compiler.backends import fragments
from gatehouse.compiler.backends.fragments import Followed, Unsupported
from gatehouse.dataplane.xds.resources import Resource, Resources

__all__ = ["Followed", "Part", "Parts", "Unsupported"]

Part = fragments.Part[Resource]


class Parts(fragments.Parts[Resource, Resources]):
    """All parts of a gateway, and the set of their resources."""

    def __init__(self) -> None:
        super().__init__(Resources())
