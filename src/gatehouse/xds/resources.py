"""Resources: what an Envoy is to have, addressed by type and name, compared by content."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

import msgspec

PREFIX = "type.googleapis.com/"
CLUSTER = PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINTS = PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
SECRET = PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret"
LISTENER = PREFIX + "envoy.config.listener.v3.Listener"
ROUTES = PREFIX + "envoy.config.route.v3.RouteConfiguration"
SCOPE = PREFIX + "envoy.config.route.v3.ScopedRouteConfiguration"
VIRTUAL_HOST = PREFIX + "envoy.config.route.v3.VirtualHost"

ORDER = (SECRET, CLUSTER, ENDPOINTS, LISTENER, SCOPE, ROUTES, VIRTUAL_HOST)
"""The order in which types are told, so that nothing is told that names what is not there yet;
what goes is taken away in the opposite order."""

Key = tuple[str, str]
"""Type URL and name."""


class Resource(msgspec.Struct, frozen=True):
    """One resource, as it goes over the wire."""

    type_url: str
    name: str
    body: bytes
    """The serialised message of that type."""
    version: str
    """Depends on the body alone."""
    origins: tuple[str, ...] = ()
    """For people: the objects that it was made from, such as ``namespace/name`` of routes. They
    are told when an Envoy refuses the resource."""
    secret: bool = False
    """Holds key material: written 0600 and never logged."""

    @classmethod
    def make(
        cls,
        type_url: str,
        name: str,
        body: bytes,
        *,
        origins: tuple[str, ...] = (),
        secret: bool = False,
    ) -> Resource:
        """Build a resource, computing its version."""
        version = base64.b64encode(hashlib.sha256(body).digest()[:18]).decode()
        return cls(type_url, name, body, version, origins, secret)

    @property
    def key(self) -> Key:
        """Type and name."""
        return (self.type_url, self.name)

    def __repr__(self) -> str:
        kind = self.type_url.rpartition(".")[2]
        return f"Resource({kind} {self.name!r}, {len(self.body)} bytes, {self.version})"


class Resources:
    """An immutable set of resources with a version that depends on their content alone."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        by_type: defaultdict[str, dict[str, Resource]] = defaultdict(dict)
        for each in resources:
            by_type[each.type_url][each.name] = each
        self.by_type: Mapping[str, Mapping[str, Resource]] = MappingProxyType(dict(by_type))

    @cached_property
    def version(self) -> str:
        """Standard base64 of a number that is the sum of all resources' digests.

        A sum needs no order, and can follow a change without looking at what did not change.
        """
        total = 0
        for named in self.by_type.values():
            for each in named.values():
                text = f"{each.type_url}\0{each.name}\0{each.version}".encode()
                total += int.from_bytes(hashlib.sha256(text).digest())
        return base64.b64encode((total % 2**256).to_bytes(32)).decode()

    def __len__(self) -> int:
        return sum(len(named) for named in self.by_type.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    def __repr__(self) -> str:
        return f"Resources({len(self)} resources, {self.version})"
