"""Gateway API joined with the plug-ins whose objects attach to Gateway listeners.

A *plug-in* is a front end that implements :class:`FrontendPlugin` at module level. A new one is an
entry in :data:`PLUGINS`.
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
    """Interface of a front end whose objects attach to listeners, like routes."""

    @property
    def KINDS(self) -> tuple[resources.Resource, ...]:
        """Resources to watch."""

    @property
    def INDEXES(self) -> Mapping[str, tuple[Index, ...]]:
        """Index buckets by kind. Objects with a status are in the bucket ``STATUS_SUBJECTS``."""

    def decode(self, kind: str, raw: Mapping[str, Any]) -> meta.Resource:
        """Decode an object. Never raises."""

    def contribution(self, ask: Ask, gateway: Key) -> Contribution:
        """Return what this front end adds to a Gateway."""

    def attached(self, ask: Ask, gateway: Key) -> Mapping[tuple[Key, str], int]:
        """Return the number of attached objects per listener of a Gateway and its ListenerSets."""

    def status(self, ask: Ask, key: Key) -> Status | None:
        """Return the desired status of an object, without times."""

    def gateways_of(self, ask: Ask, key: Key) -> tuple[Key, ...]:
        """Return the Gateways that serve an object."""


PLUGINS: tuple[FrontendPlugin, ...] = (upstream_cluster, hosted_apiserver)

KINDS: tuple[resources.Resource, ...] = (
    *gateway_api.KINDS,
    *(kind for plugin in PLUGINS for kind in plugin.KINDS),
)
"""Resources to watch."""

OPTIONAL_KINDS: tuple[resources.Resource, ...] = (
    *gateway_api.OPTIONAL_KINDS,
    *(kind for plugin in PLUGINS for kind in plugin.KINDS),
)
"""Resources whose CRDs may be missing from the cluster."""

INDEXES: Mapping[str, tuple[Index, ...]] = {
    **gateway_api.INDEXES,
    **{kind: indexes for plugin in PLUGINS for kind, indexes in plugin.INDEXES.items()},
}
"""Index buckets of each kind, for :class:`gatehouse.incremental.query.Snapshot`."""

REPORTED: tuple[resources.Resource, ...] = (
    *gateway_api.STATUS_KINDS,
    *(kind for plugin in PLUGINS for kind in plugin.KINDS),
)
"""Resources whose statuses the controller writes."""

_BY_KIND = {kind.kind: plugin for plugin in PLUGINS for kind in plugin.KINDS}


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Decode an object of one of :data:`KINDS`. Never raises."""
    plugin = _BY_KIND.get(kind)
    return plugin.decode(kind, raw) if plugin is not None else gateway_api.decode(kind, raw)


def compile_gateway(ask: Ask, key: Key) -> ir.Gateway | None:
    """Return the IR of a Gateway.

    None if the Gateway is not managed, waits for an address, or requests an unsupported one.
    """
    gateway = ask(gateway_api.compile_gateway, key)
    if gateway is None:
        return None
    # Merged incrementally: there are thousands of hostnames and clusters, too many to copy.
    gateway = hosted_apiserver.with_hosted_apiservers(ask, key, gateway)
    added = [c for plugin in PLUGINS if (c := ask(plugin.contribution, key)) != EMPTY]
    return _with(gateway, added) if added else gateway


def _with(gateway: ir.Gateway, added: list[Contribution]) -> ir.Gateway:
    return msgspec.structs.replace(
        gateway,
        api_listeners=_by_port(each.api_listeners for each in added),
        proxy_protocol_listeners=_by_port(each.proxy_protocol_listeners for each in added),
        clusters=_clusters(gateway.clusters, [each for one in added for each in one.clusters]),
        certificates=_union(gateway.certificates, (each.certificates for each in added)),
        trust_bundles=_union(gateway.trust_bundles, (each.trust_bundles for each in added)),
        secrets=_union(gateway.secrets, (each.secrets for each in added)),
    )


def _clusters(own: Collection[Cluster], more: list[Cluster]) -> Collection[Cluster]:
    """Return all clusters. Those of routes, which are many, are copied only if needed."""
    return _union(tuple(own), [tuple(more)]) if more else own


class _Ported(Protocol):
    @property
    def port(self) -> int: ...


P = TypeVar("P", bound=_Ported)


def _by_port(parts: Iterable[tuple[P, ...]]) -> tuple[P, ...]:
    return tuple(sorted((each for part in parts for each in part), key=lambda each: each.port))


def _union(first: tuple[N, ...], parts: Iterable[tuple[N, ...]]) -> tuple[N, ...]:
    """Return all entries, sorted by name. Equal names mean equal content."""
    by_name = {each.name: each for part in parts for each in part}
    by_name.update({each.name: each for each in first})
    return tuple(by_name[name] for name in sorted(by_name))


def subjects(ask: Ask, _: str = "") -> Table[Key, Key]:
    """Return every object whose status the controller may write, including those of plug-ins."""
    return ask(gateway_api.subjects, "")


def status(ask: Ask, key: Key) -> Status | None:
    """Return the desired status of an object; None if this controller does not manage it."""
    plugin = _BY_KIND.get(key[0])
    if plugin is not None:
        return plugin.status(ask, key)
    # A plain call, not a query: a second memo for each of 40,000 routes would be waste.
    desired = gateway_api.status(ask, key)
    if isinstance(desired, GatewayStatus | SetStatus):
        return _counted(ask, key, desired)
    return desired


def _counted(ask: Ask, key: Key, desired: GatewayStatus | SetStatus) -> GatewayStatus | SetStatus:
    """Add the objects of plug-ins to the counts of attached routes."""
    gateway = key if key[0] == "Gateway" else ask(parent_of, key)
    if gateway is None:
        return desired
    counts: dict[str, int] = {}
    for plugin in PLUGINS:
        for (owner, name), count in ask(plugin.attached, gateway).items():
            if owner == key:
                counts[name] = counts.get(name, 0) + count
    if not any(counts.values()):
        return desired
    listeners = tuple(
        msgspec.structs.replace(each, attached=each.attached + counts.get(each.name, 0))
        for each in desired.listeners
    )
    return msgspec.structs.replace(desired, listeners=listeners)


def gateways_of(ask: Ask, key: Key) -> tuple[Key, ...] | None:
    """Return the managed Gateways that serve a route or an object of a plug-in; else None.

    The status of such an object is deferred until their data planes have confirmed it.
    """
    plugin = _BY_KIND.get(key[0])
    if plugin is not None:
        return plugin.gateways_of(ask, key)
    return gateway_api.gateways_of_route(ask, key) if key[0] in gateway_api.ROUTE_KINDS else None


def merge_status(
    current: Mapping[str, Any] | None, desired: Status, now: str
) -> dict[str, Any] | None:
    """Return the whole status to write; None if ``current`` is up to date. ``now``: RFC 3339."""
    if isinstance(desired, upstream_cluster.ClusterStatus):
        return upstream_cluster.merge_status(current, desired, now)
    if isinstance(desired, hosted_apiserver.HostedStatus):
        return hosted_apiserver.merge_status(current, desired, now)
    return gateway_api.merge_status(current, desired, now)
