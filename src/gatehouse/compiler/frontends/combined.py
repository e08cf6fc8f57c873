"""Everything that Gateways serve: what Gateway API says, and what guests add to their listeners.

A *guest* is a front end whose objects attach to listeners like routes. It has the functions that
are called here, by the same names; a new one is a line in :data:`GUESTS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from gatehouse.apis import meta, resources
from gatehouse.compiler.frontends import gateway_api, hosted_apiserver, upstream_cluster
from gatehouse.compiler.frontends.contribution import EMPTY, Contribution
from gatehouse.compiler.frontends.gateway_api.listeners.listener_sets import parent_of
from gatehouse.compiler.frontends.gateway_api.status.types import GatewayStatus, SetStatus
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster
from gatehouse.incremental.query import Ask, Index, Key
from gatehouse.incremental.table import Table

Status = gateway_api.Status | upstream_cluster.ClusterStatus | hosted_apiserver.HostedStatus


class FrontendPlugin(Protocol):
    """What a guest's module has."""

    @property
    def KINDS(self) -> tuple[resources.Resource, ...]:
        """The resources to watch."""

    @property
    def INDEXES(self) -> Mapping[str, tuple[Index, ...]]:
        """Their index buckets; objects with a status are in that of ``SUBJECTS``."""

    def decode(self, kind: str, raw: Mapping[str, Any]) -> meta.Resource:
        """Read an object; never raises."""

    def contribution(self, ask: Ask, gateway: Key) -> Contribution:
        """Give what a Gateway serves of it."""

    def attached(self, ask: Ask, gateway: Key) -> Mapping[tuple[Key, str], int]:
        """Count the objects on each listener of a Gateway and its ListenerSets."""

    def status(self, ask: Ask, key: Key) -> Status | None:
        """Give the wanted status of an object."""

    def gateways_of(self, ask: Ask, key: Key) -> tuple[Key, ...]:
        """Give the Gateways that serve an object."""


PLUGINS: tuple[FrontendPlugin, ...] = (upstream_cluster, hosted_apiserver)

KINDS: tuple[resources.Resource, ...] = (
    *gateway_api.KINDS,
    *(kind for guest in PLUGINS for kind in guest.KINDS),
)
"""The resources to watch."""

OPTIONAL_KINDS: tuple[resources.Resource, ...] = (
    *gateway_api.OPTIONAL_KINDS,
    *(kind for guest in PLUGINS for kind in guest.KINDS),
)
"""Those that a cluster need not know."""

INDEXES: Mapping[str, tuple[Index, ...]] = {
    **gateway_api.INDEXES,
    **{kind: found for guest in PLUGINS for kind, found in guest.INDEXES.items()},
}
"""The index buckets of each kind, for :class:`gatehouse.query.Snapshot`."""

REPORTED: tuple[resources.Resource, ...] = (
    *gateway_api.STATUS_KINDS,
    *(kind for guest in PLUGINS for kind in guest.KINDS),
)
"""Those of which we write statuses."""

_BY_KIND = {kind.kind: guest for guest in PLUGINS for kind in guest.KINDS}


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Read an object of one of :data:`KINDS`; never raises."""
    guest = _BY_KIND.get(kind)
    return guest.decode(kind, raw) if guest is not None else gateway_api.decode(kind, raw)


def compile_gateway(ask: Ask, key: Key) -> ir.Gateway | None:
    """Give what a Gateway's data plane serves; None while it waits for an address, or may not."""
    found = ask(gateway_api.compile_gateway, key)
    if found is None:
        return None
    # Thousands of names, and their clusters, are no contribution that is copied each time.
    found = hosted_apiserver.with_hosted_apiservers(ask, key, found)
    added = [each for guest in PLUGINS if (each := ask(guest.contribution, key)) != EMPTY]
    return _with(found, added) if added else found


def _with(gateway: ir.Gateway, added: list[Contribution]) -> ir.Gateway:
    return msgspec.structs.replace(
        gateway,
        apis=_by_port(each.apis for each in added),
        tunnels=_by_port(each.tunnels for each in added),
        clusters=_clusters(gateway.clusters, [each for one in added for each in one.clusters]),
        certificates=_union(gateway.certificates, (each.certificates for each in added)),
        trust=_union(gateway.trust, (each.trust for each in added)),
        secrets=_union(gateway.secrets, (each.secrets for each in added)),
    )


def _clusters(own: Collection[Cluster], more: list[Cluster]) -> Collection[Cluster]:
    """Give the clusters; those of routes, which are many, are not copied without need."""
    return _union(tuple(own), [tuple(more)]) if more else own


class _Ported(Protocol):
    @property
    def port(self) -> int: ...


P = TypeVar("P", bound=_Ported)


def _by_port(parts: Iterable[tuple[P, ...]]) -> tuple[P, ...]:
    return tuple(sorted((each for part in parts for each in part), key=lambda each: each.port))


def _union(first: tuple[N, ...], parts: Iterable[tuple[N, ...]]) -> tuple[N, ...]:
    """Give everything once, sorted by name; names depend on the content."""
    found = {each.name: each for part in parts for each in part}
    found.update({each.name: each for each in first})
    return tuple(found[name] for name in sorted(found))


def subjects(ask: Ask, _: str = "") -> Table[Key, Key]:
    """Give every object whose status may be ours to write, those of guests among them."""
    return ask(gateway_api.subjects, "")


def status(ask: Ask, key: Key) -> Status | None:
    """Give the wanted status of an object; None for one that is none of our business."""
    guest = _BY_KIND.get(key[0])
    if guest is not None:
        return guest.status(ask, key)
    # Not asked but called: one memo for each of 40,000 routes is enough.
    found = gateway_api.status(ask, key)
    if isinstance(found, GatewayStatus | SetStatus):
        return _counted(ask, key, found)
    return found


def _counted(ask: Ask, key: Key, found: GatewayStatus | SetStatus) -> GatewayStatus | SetStatus:
    """Count what guests attached to listeners."""
    gateway = key if key[0] == "Gateway" else ask(parent_of, key)
    if gateway is None:
        return found
    counts: dict[str, int] = {}
    for guest in PLUGINS:
        for (owner, name), count in ask(guest.attached, gateway).items():
            if owner == key:
                counts[name] = counts.get(name, 0) + count
    if not any(counts.values()):
        return found
    listeners = tuple(
        msgspec.structs.replace(each, attached=each.attached + counts.get(each.name, 0))
        for each in found.listeners
    )
    return msgspec.structs.replace(found, listeners=listeners)


def gateways_of(ask: Ask, key: Key) -> tuple[Key, ...] | None:
    """Give our Gateways that serve a route, or an object of a guest; None for anything else.

    The status of such an object waits for their data planes.
    """
    guest = _BY_KIND.get(key[0])
    if guest is not None:
        return guest.gateways_of(ask, key)
    return gateway_api.gateways_of_route(ask, key) if key[0] in gateway_api.ROUTE_KINDS else None


def merge_status(
    current: Mapping[str, Any] | None, desired: Status, now: str
) -> dict[str, Any] | None:
    """Give the whole status to write; None when ``current`` says the same. ``now``: RFC 3339."""
    if isinstance(desired, upstream_cluster.ClusterStatus):
        return upstream_cluster.merge_status(current, desired, now)
    if isinstance(desired, hosted_apiserver.HostedStatus):
        return hosted_apiserver.merge_status(current, desired, now)
    return gateway_api.merge_status(current, desired, now)
