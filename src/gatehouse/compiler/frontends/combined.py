"""Gateway API joined with the front ends whose objects attach to Gateway listeners.

Each front end is a record (:class:`gatehouse.compiler.frontends.front_end.FrontEnd`). A new one is
an entry in :data:`FRONT_ENDS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from gatehouse.compiler.frontends import gateway_api, hosted_apiserver, upstream_cluster
from gatehouse.compiler.frontends.contribution import EMPTY, Contribution
from gatehouse.compiler.frontends.front_end import FrontEnd
from gatehouse.compiler.frontends.gateway_api.listeners.listener_sets import parent_of
from gatehouse.compiler.frontends.gateway_api.status.types import GatewayStatus, SetStatus
from gatehouse.compiler.frontends.kinds import DesiredStatus, Kinds
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

Status = DesiredStatus

FRONT_ENDS: tuple[FrontEnd, ...] = (
    gateway_api.FRONT_END,
    upstream_cluster.FRONT_END,
    hosted_apiserver.FRONT_END,
)

KINDS = Kinds(*(kind for front_end in FRONT_ENDS for kind in front_end.kinds))
"""Kinds of all front ends."""

INDEXES = KINDS.indexes
decode = KINDS.decode

_BY_KIND = {kind: front_end for front_end in FRONT_ENDS for kind in front_end.kinds.by_name}
_EXTENSIONS = [each.extend for each in FRONT_ENDS if each.extend is not None]
_CONTRIBUTIONS = [each.contribution for each in FRONT_ENDS if each.contribution is not None]
_ATTACHED = [each.attached for each in FRONT_ENDS if each.attached is not None]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def compile_gateway(ask: Ask, key: Key) -> ir.Gateway | None:
    """Return the IR of a Gateway.

    None if the Gateway is not managed, waits for an address, or requests an unsupported one.
    """
    gateway = ask(gateway_api.compile_gateway, key)
    if gateway is None:
        return None
    for extend in _EXTENSIONS:
        gateway = extend(ask, key, gateway)
    added = [c for contribution in _CONTRIBUTIONS if (c := ask(contribution, key)) != EMPTY]
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
    """Return every object whose status the controller may write, of any front end."""
    return ask(gateway_api.subjects, "")


def status(ask: Ask, key: Key) -> Status | None:
    """Return the desired status of an object; None if this controller does not manage it."""
    kind = KINDS.by_name[key[0]]
    if kind.status is None:
        return None
    # A plain call, not a query: a second memo for each of 40,000 routes would be waste.
    desired = kind.status(ask, key)
    if isinstance(desired, GatewayStatus | SetStatus):
        return _counted(ask, key, desired)
    return desired


def _counted(ask: Ask, key: Key, desired: GatewayStatus | SetStatus) -> GatewayStatus | SetStatus:
    """Add the objects of other front ends to the counts of attached routes."""
    gateway = key if key[0] == "Gateway" else ask(parent_of, key)
    if gateway is None:
        return desired
    counts: dict[str, int] = {}
    for attached in _ATTACHED:
        for (owner, name), count in ask(attached, gateway).items():
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
    """Return the managed Gateways that serve a route or another attached object; else None.

    The status of such an object is deferred until their data planes have confirmed it.
    """
    kind = KINDS.by_name[key[0]]
    return None if kind.gateways_of is None else kind.gateways_of(ask, key)


def deadlines(ask: Ask, key: Key) -> tuple[int, ...] | None:
    """Return the points in time (Unix seconds) at which the status of an object changes."""
    kind = KINDS.by_name[key[0]]
    return None if kind.deadlines is None else kind.deadlines(ask, key)


def merge_status(
    kind: str, current: Mapping[str, Any] | None, desired: Status, now: str
) -> dict[str, Any] | None:
    """Return the whole status to write; None if ``current`` is up to date. ``now``: RFC 3339."""
    return _BY_KIND[kind].merge_status(current, desired, now)
