"""Origins: the objects that configuration was generated from, so that a rejection names them."""

from __future__ import annotations

import msgspec


class Origin(msgspec.Struct, frozen=True, order=True):
    """An object, or a part of it."""

    kind: str
    namespace: str
    """Empty for cluster-scoped kinds."""
    name: str
    part: str = ""
    """Path of the part within ``spec``, such as ``rules[0].matches[1]``; empty: the whole
    object."""
    port: int = 0
    """For the listeners of a Gateway that share a port; 0: the whole object."""

    @property
    def whole(self) -> Origin:
        """The object."""
        return Origin(self.kind, self.namespace, self.name) if self.part or self.port else self

    def field(self, name: str) -> Origin:
        """Return a field of this part."""
        return Origin(self.kind, self.namespace, self.name, f"{self.part}.{name}".lstrip("."))

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        part = f": spec.{self.part}" if self.part else f": port {self.port}" if self.port else ""
        return f"{self.kind} {name}{part}"


NO_ORIGIN = Origin("", "", "")
"""Origin of configuration that no object describes."""


def gateway_origin(gateway: str) -> Origin:
    """Return the origin of a Gateway. ``gateway``: ``namespace/name``."""
    namespace, _, name = gateway.partition("/")
    return Origin("Gateway", namespace, name)


def port_origin(gateway: str, port: int) -> Origin:
    """Return the origin of a port of a Gateway, which several listeners may share."""
    namespace, _, name = gateway.partition("/")
    return Origin("Gateway", namespace, name, port=port)


def object_of(key: tuple[str, ...]) -> Origin:
    """Return the origin of the object with a key."""
    return port_of(key, 0)


def port_of(key: tuple[str, ...], port: int) -> Origin:
    """Return the origin of a port of the object with a key."""
    kind, namespace, name = key
    return Origin(kind, namespace, name, port=port)
