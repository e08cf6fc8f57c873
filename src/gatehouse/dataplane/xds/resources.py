"""Resources: what an Envoy is to have, addressed by type and name, compared by content."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

import msgspec

from gatehouse.dataplane import features
from gatehouse.dataplane.xds import protobuf_wire

PREFIX = "type.googleapis.com/"
CLUSTER = PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINTS = PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
"""Named like their cluster, so that they can be told again when that changes."""
SECRET = PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret"
LISTENER = PREFIX + "envoy.config.listener.v3.Listener"
ROUTES = PREFIX + "envoy.config.route.v3.RouteConfiguration"
SCOPE = PREFIX + "envoy.config.route.v3.ScopedRouteConfiguration"
VIRTUAL_HOST = PREFIX + "envoy.config.route.v3.VirtualHost"
SIDECAR_CONFIG = PREFIX + features.SIDECAR_CONFIG_TYPE
"""For the agent, not for Envoy: configuration of a sidecar."""

ADD_ORDER = (SIDECAR_CONFIG, SECRET, CLUSTER, ENDPOINTS, LISTENER, SCOPE, ROUTES, VIRTUAL_HOST)
"""The order in which types are told, so that nothing is told that names what is not there yet."""

REMOVE_ORDER = (LISTENER, SCOPE, ROUTES, VIRTUAL_HOST, CLUSTER, ENDPOINTS, SECRET, SIDECAR_CONFIG)
"""The order in which what goes is taken away: what uses another before what it uses."""

Key = tuple[str, str]
"""Type URL and name."""


class Resource(msgspec.Struct, frozen=True, dict=True):
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

    @property
    def packed(self) -> bytes:
        """The resource as an ``Any``."""
        return protobuf_wire.field(1, self.type_url.encode()) + protobuf_wire.field(2, self.body)

    @cached_property
    def enveloped(self) -> bytes:
        """The resource as a ``Resource`` of discovery, written once for all who are told it."""
        name, version = self.name.encode(), self.version.encode()
        return (
            protobuf_wire.field(3, name)
            + protobuf_wire.field(1, version)
            + protobuf_wire.field(2, self.packed)
        )

    @property
    def digest(self) -> int:
        """A number that stands for type, name and content."""
        text = f"{self.type_url}\0{self.name}\0{self.version}".encode()
        return int.from_bytes(hashlib.sha256(text).digest())

    def __repr__(self) -> str:
        kind = self.type_url.rpartition(".")[2]
        return f"Resource({kind} {self.name!r}, {len(self.body)} bytes, {self.version})"


class ResourceSet:
    """An immutable set of resources with a version that depends on their content alone."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        by_type: defaultdict[str, dict[str, Resource]] = defaultdict(dict)
        for each in resources:
            by_type[each.type_url][each.name] = each
        self.by_type: Mapping[str, Mapping[str, Resource]] = MappingProxyType(dict(by_type))
        self._mark = object()
        self._made_of: tuple[object, frozenset[Key]] = (None, frozenset())
        """The mark of the set that this one was made of, and the keys that were touched."""

    @cached_property
    def _total(self) -> int:
        everything = (each for named in self.by_type.values() for each in named.values())
        return sum(each.digest for each in everything)

    @cached_property
    def version(self) -> str:
        """Standard base64 of a number that is the sum of all resources' digests.

        A sum needs no order, and can follow a change without looking at what did not change.
        """
        return base64.b64encode((self._total % 2**256).to_bytes(32)).decode()

    def get(self, type_url: str, name: str) -> Resource | None:
        """Give the resource of that type and name, if there is one."""
        return self.by_type.get(type_url, _NONE).get(name)

    def changed(self, new: Iterable[Resource] = (), gone: Iterable[Key] = ()) -> ResourceSet:
        """Give a set with ``new`` in it and without ``gone``, sharing types that stay the same."""
        new, gone = tuple(new), tuple(gone)
        by_type, total = dict(self.by_type), self._total
        written: dict[str, dict[str, Resource]] = {}

        def named(type_url: str) -> dict[str, Resource]:
            if type_url not in written:
                by_type[type_url] = written[type_url] = dict(by_type.get(type_url, _NONE))
            return written[type_url]

        for type_url, name in gone:
            left = named(type_url).pop(name, None)
            total -= left.digest if left else 0
        for each in new:
            before = named(each.type_url).get(each.name)
            total += each.digest - (before.digest if before else 0)
            named(each.type_url)[each.name] = each
        for type_url in [each for each in written if not written[each]]:
            del by_type[type_url]
        made = ResourceSet()
        made.by_type = MappingProxyType(by_type)
        made.__dict__["_total"] = total
        made._made_of = (self._mark, frozenset((*gone, *(each.key for each in new))))
        return made

    def differing(self, other: ResourceSet) -> set[Key]:
        """Give the keys under which the two sets have something else."""
        keys: set[Key] = set()
        mark, touched = other._made_of
        if mark is self._mark:
            # Nobody need look at the thousands of others.
            return {key for key in touched if _version(self, key) != _version(other, key)}
        for type_url in self.by_type.keys() | other.by_type.keys():
            mine, others = self.by_type.get(type_url, _NONE), other.by_type.get(type_url, _NONE)
            if mine is others:
                continue
            for name, each in mine.items():
                found = others.get(name)
                # Nearly all are the very same objects, and that is asked fastest.
                if found is not each and (found is None or found.version != each.version):
                    keys.add((type_url, name))
            keys.update((type_url, name) for name in others.keys() - mine.keys())
        return keys

    def __len__(self) -> int:
        return sum(len(named) for named in self.by_type.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourceSet) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    def __repr__(self) -> str:
        return f"Resources({len(self)} resources, {self.version})"


_NONE: Mapping[str, Resource] = MappingProxyType({})


def _version(resources: ResourceSet, key: Key) -> str:
    found = resources.get(*key)
    return found.version if found is not None else ""
