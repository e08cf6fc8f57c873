"""Gateway API joined with the front ends whose objects attach to Gateway listeners.

Each front end is a record (:class:`gatehouse.compiler.frontends.front_end.FrontEnd`). A new one is
an entry in :data:`FRONT_ENDS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from gatehouse.compiler.frontends import gateway_api, hosted_apiserver, upstream_cluster
from gatehouse.compiler.frontends.certificate_validity import validity_deadlines
from gatehouse.compiler.frontends.contribution import EMPTY_CONTRIBUTION, Contribution
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
    gateway_api.GATEWAY_API_FRONT_END,
    upstream_cluster.UPSTREAM_CLUSTER_FRONT_END,
    hosted_apiserver.HOSTED_API_SERVER_FRONT_END,
)

KINDS = Kinds(*(kind for front_end in FRONT_ENDS for kind in front_end.kinds))
"""Kinds of all front ends."""

INDEXES = {**KINDS.indexes, **gateway_api.INPUT_INDEXES}
decode_object = KINDS.decode

_BY_KIND = {kind: front_end for front_end in FRONT_ENDS for kind in front_end.kinds.by_name}
_EXTENSIONS = [front_end.extend for front_end in FRONT_ENDS if front_end.extend is not None]
_CONTRIBUTIONS = [
    front_end.contribution for front_end in FRONT_ENDS if front_end.contribution is not None
]
_ATTACHED = [front_end.attached for front_end in FRONT_ENDS if front_end.attached is not None]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def compile_combined_gateway(ask: Ask, key: Key) -> ir.GatewayConfiguration | None:
    """Return the IR of a Gateway.

    None if the Gateway is not managed, waits for an address, or requests an unsupported one.
    """
    gateway = ask(gateway_api.compile_gateway, key)
    if gateway is None:
        return None
    for extend in _EXTENSIONS:
        gateway = extend(ask, key, gateway)
    added = [
        c for contribution in _CONTRIBUTIONS if (c := ask(contribution, key)) != EMPTY_CONTRIBUTION
    ]
    return _with(gateway, added) if added else gateway


def _with(gateway: ir.GatewayConfiguration, added: list[Contribution]) -> ir.GatewayConfiguration:
    return msgspec.structs.replace(
        gateway,
        api_listeners=_by_port(contribution.api_listeners for contribution in added),
        proxy_protocol_listeners=_by_port(
            contribution.proxy_protocol_listeners for contribution in added
        ),
        http_connect_listeners=_by_port(
            contribution.http_connect_listeners for contribution in added
        ),
        clusters=_clusters(
            gateway.clusters, [cluster for one in added for cluster in one.clusters]
        ),
        certificates=_union(
            gateway.certificates, (contribution.certificates for contribution in added)
        ),
        trust_bundles=_union(
            gateway.trust_bundles, (contribution.trust_bundles for contribution in added)
        ),
        secrets=_union(gateway.secrets, (contribution.secrets for contribution in added)),
    )


def _clusters(own: Collection[Cluster], more: list[Cluster]) -> Collection[Cluster]:
    """Return all clusters. Those of routes, which are many, are copied only if needed."""
    return _union(tuple(own), [tuple(more)]) if more else own


class _Ported(Protocol):
    @property
    def port(self) -> int: ...


P = TypeVar("P", bound=_Ported)


def _by_port(parts: Iterable[tuple[P, ...]]) -> tuple[P, ...]:
    return tuple(
        sorted(
            (listener for part in parts for listener in part), key=lambda listener: listener.port
        )
    )


def _union(first: tuple[N, ...], parts: Iterable[tuple[N, ...]]) -> tuple[N, ...]:
    """Return all entries, sorted by name. Equal names mean equal content."""
    by_name = {entry.name: entry for part in parts for entry in part}
    by_name.update({entry.name: entry for entry in first})
    return tuple(by_name[name] for name in sorted(by_name))


def status_subjects(ask: Ask) -> Table[Key, Key]:
    """Return every object whose status the controller may write, of any front end."""
    return ask(gateway_api.gateway_api_subjects)


def desired_status(ask: Ask, key: Key) -> Status | None:
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
        msgspec.structs.replace(listener, attached=listener.attached + counts.get(listener.name, 0))
        for listener in desired.listeners
    )
    return msgspec.structs.replace(desired, listeners=listeners)


def gateways_of_attached(ask: Ask, key: Key) -> tuple[Key, ...] | None:
    """Return the managed Gateways that serve a route or another attached object; else None.

    The status of such an object is deferred until their data planes have confirmed it.
    """
    kind = KINDS.by_name[key[0]]
    return None if kind.gateways_of is None else kind.gateways_of(ask, key)


def deadlines(ask: Ask, key: Key) -> tuple[int, ...] | None:
    """Return the points in time (Unix seconds) at which the status of an object changes."""
    kind = KINDS.by_name[key[0]]
    if kind.certificates is None:
        return None
    return validity_deadlines(kind.certificates(ask, key)) or None


def merge_combined_status(
    kind: str, current: Mapping[str, Any] | None, desired: Status, now: str
) -> dict[str, Any] | None:
    """Return the whole status to write; None if ``current`` is up to date. ``now``: RFC 3339."""
    return _BY_KIND[kind].merge_status(current, desired, now)
