"""Desired statuses, without times and entries of other controllers."""

from __future__ import annotations

import msgspec

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api.findings import Condition
from gatehouse.compiler.frontends.gateway_api.listeners.addresses import AssignedAddress
from gatehouse.compiler.frontends.kinds import DesiredStatus
from gatehouse.incremental.query import Key


class ClassStatus(DesiredStatus, frozen=True, tag=True):
    """Status of a GatewayClass or an XMesh."""

    conditions: tuple[Condition, ...]
    features: tuple[str, ...] = ()


class ListenerStatus(msgspec.Struct, frozen=True):
    """Status of a listener."""

    name: str
    kinds: tuple[str, ...]
    attached: int
    conditions: tuple[Condition, ...]


class GatewayStatus(DesiredStatus, frozen=True, tag=True):
    """Status of a Gateway."""

    conditions: tuple[Condition, ...]
    addresses: tuple[AssignedAddress, ...] = ()
    listeners: tuple[ListenerStatus, ...] = ()
    sets: int = 0
    """Number of attached ListenerSets."""


class SetStatus(DesiredStatus, frozen=True, tag=True):
    """Status of a ListenerSet."""

    conditions: tuple[Condition, ...]
    listeners: tuple[ListenerStatus, ...] = ()


class ParentStatus(msgspec.Struct, frozen=True):
    """Status of a route at one parent."""

    controller: str
    parent: routes.ParentRef
    conditions: tuple[Condition, ...]


class RouteStatus(DesiredStatus, frozen=True, tag=True):
    """Status of a route: the entries of this controller in ``parents``."""

    parents: tuple[ParentStatus, ...] = ()


MAX_ANCESTORS = 16
"""Maximum number of entries in a policy's status, of all controllers together."""

MAX_PARENTS = 32
"""Maximum number of entries in the status of an InferencePool or XBackend, of all controllers
together.
"""


class AncestorStatus(msgspec.Struct, frozen=True):
    """Status of a policy for one Gateway or route, or for a target that is not served."""

    controller: str
    ancestor: Key
    conditions: tuple[Condition, ...]
    group: str = ""
    """API group of the ancestor; empty: that of its kind in Kubernetes or Gateway API."""


class PolicyStatus(DesiredStatus, frozen=True, tag=True):
    """Status of a policy, XBackend or InferencePool: the entries of this controller."""

    ancestors: tuple[AncestorStatus, ...] = ()
    limit: int = MAX_ANCESTORS
    """Maximum number of entries, of all controllers together."""
    fields: tuple[str, str] = ("ancestors", "ancestorRef")
    """Names of the list, and of the reference in an entry."""


class FilterStatus(DesiredStatus, frozen=True, tag=True):
    """Status of a filter: the entries of this controller in ``controllers``."""

    controllers: tuple[tuple[str, tuple[Condition, ...]], ...]
    """Names, each with its conditions."""


GatewayApiStatus = (
    ClassStatus | GatewayStatus | SetStatus | RouteStatus | PolicyStatus | FilterStatus
)
