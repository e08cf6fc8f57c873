"""The forms of statuses that we want objects to have, before times and others' entries."""

from __future__ import annotations

import msgspec

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api.findings import Condition
from gatehouse.incremental.query import Key


class ClassStatus(msgspec.Struct, frozen=True, tag=True):
    """Of a GatewayClass."""

    conditions: tuple[Condition, ...]
    features: tuple[str, ...] = ()


class ListenerStatus(msgspec.Struct, frozen=True):
    """Of a listener."""

    name: str
    kinds: tuple[str, ...]
    attached: int
    conditions: tuple[Condition, ...]


class GatewayStatus(msgspec.Struct, frozen=True, tag=True):
    """Of a Gateway."""

    conditions: tuple[Condition, ...]
    addresses: tuple[str, ...] = ()
    listeners: tuple[ListenerStatus, ...] = ()
    sets: int = 0
    """ListenerSets that are attached."""


class SetStatus(msgspec.Struct, frozen=True, tag=True):
    """Of a ListenerSet."""

    conditions: tuple[Condition, ...]
    listeners: tuple[ListenerStatus, ...] = ()


class ParentStatus(msgspec.Struct, frozen=True):
    """Of one parentRef of a route."""

    controller: str
    parent: routes.ParentRef
    conditions: tuple[Condition, ...]


class RouteStatus(msgspec.Struct, frozen=True, tag=True):
    """Of a route: our entries among the parents."""

    parents: tuple[ParentStatus, ...] = ()


class AncestorStatus(msgspec.Struct, frozen=True):
    """Of a policy, as it holds for one Gateway or route."""

    controller: str
    ancestor: Key
    conditions: tuple[Condition, ...]


class PolicyStatus(msgspec.Struct, frozen=True, tag=True):
    """Of a policy: our entries among the ancestors."""

    ancestors: tuple[AncestorStatus, ...] = ()


class FilterStatus(msgspec.Struct, frozen=True, tag=True):
    """Of a filter of another group: our entries among the controllers."""

    controllers: tuple[str, ...]
    conditions: tuple[Condition, ...]


Status = ClassStatus | GatewayStatus | SetStatus | RouteStatus | PolicyStatus | FilterStatus
