"""xDS resources and resource sets: addressed by type and name, compared by content."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

import msgspec

from gatehouse.dataplane import features
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds import protobuf_wire

TYPE_URL_PREFIX = "type.googleapis.com/"
CLUSTER_TYPE_URL = TYPE_URL_PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINTS_TYPE_URL = TYPE_URL_PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
"""Named like their cluster, so that they can be sent again when the cluster changes."""
SECRET_TYPE_URL = TYPE_URL_PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret"
LISTENER_TYPE_URL = TYPE_URL_PREFIX + "envoy.config.listener.v3.Listener"
ROUTES_TYPE_URL = TYPE_URL_PREFIX + "envoy.config.route.v3.RouteConfiguration"
SCOPE_TYPE_URL = TYPE_URL_PREFIX + "envoy.config.route.v3.ScopedRouteConfiguration"
VIRTUAL_HOST_TYPE_URL = TYPE_URL_PREFIX + "envoy.config.route.v3.VirtualHost"
RUNTIME_TYPE_URL = TYPE_URL_PREFIX + "envoy.service.runtime.v3.Runtime"
SIDECAR_CONFIG_TYPE_URL = TYPE_URL_PREFIX + features.SIDECAR_CONFIG_TYPE
"""For the agent, not for Envoy: configuration of a sidecar."""
TRIAL_NAME = "agent/trial"
"""Name of the sidecar configuration that makes a resource set a trial. It is for no sidecar."""

ADD_ORDER = (
    SIDECAR_CONFIG_TYPE_URL,
    RUNTIME_TYPE_URL,
    SECRET_TYPE_URL,
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    SCOPE_TYPE_URL,
    ROUTES_TYPE_URL,
    VIRTUAL_HOST_TYPE_URL,
)
"""Order in which types are sent, so that a resource never refers to one not sent yet."""

REMOVE_ORDER = (
    LISTENER_TYPE_URL,
    SCOPE_TYPE_URL,
    ROUTES_TYPE_URL,
    VIRTUAL_HOST_TYPE_URL,
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    SECRET_TYPE_URL,
    RUNTIME_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
)
"""Order in which types are removed: a resource goes before the resources that it uses."""

ResourceKey = tuple[str, str]
"""Type URL and name."""


class XdsResource(msgspec.Struct, frozen=True, dict=True):
    """One resource as it is sent."""

    type_url: str
    name: str
    body: bytes
    """Serialised message of that type."""
    version: str
    """Derived from the body alone."""
    origins: tuple[Origin, ...] = ()
    """Names of the objects that the resource was generated from, such as ``namespace/name`` of
    routes. Reported if an Envoy rejects the resource."""
    secret: bool = False
    """Holds key material: written 0600 and never logged."""

    @classmethod
    def make(
        cls,
        type_url: str,
        name: str,
        body: bytes,
        *,
        origins: tuple[Origin, ...] = (),
        secret: bool = False,
    ) -> XdsResource:
        """Build a resource, computing its version."""
        version = base64.b64encode(hashlib.sha256(body).digest()[:18]).decode()
        return cls(type_url, name, body, version, origins, secret)

    @property
    def key(self) -> ResourceKey:
        """Type and name."""
        return (self.type_url, self.name)

    @property
    def packed(self) -> bytes:
        """The resource as an ``Any``."""
        return protobuf_wire.field(1, self.type_url.encode()) + protobuf_wire.field(2, self.body)

    @cached_property
    def enveloped(self) -> bytes:
        """The resource as a discovery ``Resource``, serialised once for all clients."""
        name, version = self.name.encode(), self.version.encode()
        return (
            protobuf_wire.field(3, name)
            + protobuf_wire.field(1, version)
            + protobuf_wire.field(2, self.packed)
        )

    @property
    def digest(self) -> int:
        """Number derived from type, name and version; see :attr:`ResourceSet.version`."""
        text = f"{self.type_url}\0{self.name}\0{self.version}".encode()
        return int.from_bytes(hashlib.sha256(text).digest())

    def __repr__(self) -> str:
        kind = self.type_url.rpartition(".")[2]
        return f"Resource({kind} {self.name!r}, {len(self.body)} bytes, {self.version})"


class ResourceSet:
    """An immutable set of resources. Its version depends on their content alone."""

    def __init__(self, resources: Iterable[XdsResource] = ()) -> None:
        by_type: defaultdict[str, dict[str, XdsResource]] = defaultdict(dict)
        for resource in resources:
            by_type[resource.type_url][resource.name] = resource
        self.by_type: Mapping[str, Mapping[str, XdsResource]] = MappingProxyType(dict(by_type))
        self._identity = object()
        self._derived_from: tuple[object, frozenset[ResourceKey]] = (None, frozenset())
        """Identity of the set that this one was derived from, and the changed keys."""

    @cached_property
    def _total(self) -> int:
        everything = (resource for named in self.by_type.values() for resource in named.values())
        return sum(resource.digest for resource in everything)

    @cached_property
    def version(self) -> str:
        """Version of the set: standard base64 of the sum of all resources' digests.

        A sum does not depend on an order, so an update only looks at the resources that change.
        """
        return base64.b64encode((self._total % 2**256).to_bytes(32)).decode()

    def get(self, type_url: str, name: str) -> XdsResource | None:
        """Return the resource with that type and name, or None."""
        return self.by_type.get(type_url, _NONE).get(name)

    def changed(
        self, new: Iterable[XdsResource] = (), gone: Iterable[ResourceKey] = ()
    ) -> ResourceSet:
        """Return a set with ``new`` and without ``gone``, sharing the unchanged types."""
        new, gone = tuple(new), tuple(gone)
        by_type, total = dict(self.by_type), self._total
        written: dict[str, dict[str, XdsResource]] = {}

        def named(type_url: str) -> dict[str, XdsResource]:
            if type_url not in written:
                by_type[type_url] = written[type_url] = dict(by_type.get(type_url, _NONE))
            return written[type_url]

        for type_url, name in gone:
            left = named(type_url).pop(name, None)
            total -= left.digest if left else 0
        for resource in new:
            before = named(resource.type_url).get(resource.name)
            total += resource.digest - (before.digest if before else 0)
            named(resource.type_url)[resource.name] = resource
        for type_url in [emptied for emptied in written if not written[emptied]]:
            del by_type[type_url]
        updated = ResourceSet()
        updated.by_type = MappingProxyType(by_type)
        updated.__dict__["_total"] = total
        updated._derived_from = (
            self._identity,
            frozenset((*gone, *(resource.key for resource in new))),
        )
        return updated

    @property
    def trial(self) -> bool:
        """True if only instances that serve nothing get the set, and do not become ready."""
        return TRIAL_NAME in self.by_type.get(SIDECAR_CONFIG_TYPE_URL, _NONE)

    def as_trial(self) -> ResourceSet:
        """Return the same set as a trial."""
        return self.changed([XdsResource.make(SIDECAR_CONFIG_TYPE_URL, TRIAL_NAME, b"")])

    def differing(self, other: ResourceSet) -> set[ResourceKey]:
        """Return the keys whose resources differ between the two sets."""
        keys: set[ResourceKey] = set()
        base, touched = other._derived_from
        if base is self._identity:
            # Derived from this set: the thousands of unchanged resources need no comparison.
            return {key for key in touched if _version(self, key) != _version(other, key)}
        for type_url in self.by_type.keys() | other.by_type.keys():
            mine, others = self.by_type.get(type_url, _NONE), other.by_type.get(type_url, _NONE)
            if mine is others:
                continue
            for name, resource in mine.items():
                other_resource = others.get(name)
                # Nearly all are identical objects, and identity is the fastest comparison.
                if other_resource is resource:
                    continue
                if other_resource is None or other_resource.version != resource.version:
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
        return f"ResourceSet({len(self)} resources, {self.version})"


_NONE: Mapping[str, XdsResource] = MappingProxyType({})


def _version(resources: ResourceSet, key: ResourceKey) -> str:
    resource = resources.get(*key)
    return resource.version if resource is not None else ""
