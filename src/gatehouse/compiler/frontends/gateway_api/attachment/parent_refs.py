"""parentRefs: the listeners and hostnames that a route attaches to, or why it does not."""

from __future__ import annotations

import msgspec

from gatehouse.apis import gateway, routes
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.allowed_namespaces import admits
from gatehouse.compiler.frontends.gateway_api.attachment import gateway_route_limits, route_limits
from gatehouse.compiler.frontends.gateway_api.attachment.default_gateways import (
    default_gateways,
    implied_parent,
)
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import listener_sets
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import (
    ListenerProperties,
    listener_specs,
    owned_hostnames,
)
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import PROTOCOLS
from gatehouse.incremental.query import Ask, Key

HOSTNAME_KINDS = ("HTTPRoute", "GRPCRoute", "TLSRoute")
"""Kinds of routes that are selected by hostname."""

ListenerKey = tuple[Key, str]
"""Owner (Gateway or ListenerSet) and name: unique among all listeners of a Gateway."""


class ListenerHostname(msgspec.Struct, frozen=True):
    """A hostname of a listener under which a route is served."""

    port: int
    protocol: str
    listener: ListenerKey
    hostname: str


class Attachment(msgspec.Struct, frozen=True):
    """Result of one parentRef that refers to a managed Gateway, or of a default Gateway."""

    index: int | None
    """Index of the parentRef in the route's spec; None for a default Gateway."""
    parent: Key
    """The Gateway or ListenerSet that the parentRef names, or the default Gateway."""
    gateway: Key
    listener_hostnames: tuple[ListenerHostname, ...] = ()
    listeners: tuple[ListenerKey, ...] = ()
    """The listeners that the route attached to; counted in their status."""
    refusal: Finding | None = None

    @property
    def where(self) -> str:
        """The field of the route's spec."""
        return _where(self.index)

    def reference(self, route: routes.RouteObject) -> routes.ParentRef:
        """Return the parentRef; that of a default Gateway is implied."""
        if self.index is None:
            return implied_parent(self.gateway)
        return route.spec.parent_refs[self.index]


def _where(index: int | None) -> str:
    return "useDefaultGateways" if index is None else f"parentRefs[{index}]"


_NOT_CLAIMED = (Reason.NO_MATCHING_PARENT, Reason.NOT_ALLOWED)
"""Reasons for which a default Gateway does not claim a route. The status does not have them, or
any default Gateway would add a condition to the routes of all namespaces.
"""

_MAX_PARENTS = 32
"""Maximum number of parents in the status of a route."""


def parent_results(ask: Ask, key: Key) -> tuple[Attachment, ...]:
    """Return the result of each parentRef of a route and of each default Gateway that claims it,
    not considering other routes.

    parentRefs to Gateways of other controllers are omitted.
    """
    route = ask.read(key)
    if not isinstance(route, routes.RouteObject):
        return ()
    results = []
    for index, parent in enumerate(route.spec.parent_refs):
        kind = parent.kind or "Gateway"
        if parent.group not in (None, gateway.GATEWAY_API_GROUP) or kind not in (
            "Gateway",
            "ListenerSet",
        ):
            continue
        target: Key = (kind, parent.namespace or key[1], parent.name)
        owner = target if kind == "Gateway" else ask(listener_sets.parent_of, target)
        if owner is not None and ask(is_managed_gateway, owner):
            refused = _excess(ask, key, index, target, owner)
            results.append(refused or _attach(ask, key, route, index, target, owner))
    if route.spec.use_default_gateways == gateway.DEFAULT_SCOPE:
        results += _default_results(ask, key, route, results)
    return tuple(results)


def _default_results(
    ask: Ask, key: Key, route: routes.RouteObject, results: list[Attachment]
) -> list[Attachment]:
    """Return the results of the default Gateways that claim a route, except of those that a
    parentRef of the same meaning names. ``results``: those of the parentRefs."""
    named = {entry.parent for entry in results if _names_all_listeners(entry.reference(route))}
    claimed = []
    for target in ask(default_gateways):
        if target in named:
            continue
        attached = _attach(ask, key, route, None, target, target)
        if attached.refusal is None or attached.refusal.reason not in _NOT_CLAIMED:
            claimed.append(_excess(ask, key, None, target, target) or attached)
    return claimed[: max(0, _MAX_PARENTS - len(route.spec.parent_refs))]


def _names_all_listeners(parent: routes.ParentRef) -> bool:
    return parent.section_name is None and parent.port is None


def _excess(ask: Ask, key: Key, index: int | None, target: Key, owner: Key) -> Attachment | None:
    """Return the refusal of a route beyond a limit of its namespace or Gateway; None within it."""
    message = ask(route_limits.excess_message, key) or (
        ask(gateway_route_limits.is_exceeded, owner)
        and ask(gateway_route_limits.excess_message_at, owner, key)
    )
    if not message:
        return None
    refusal = Finding(Reason.TOO_MANY_ROUTES, f"{_where(index)}: {message}")
    return Attachment(index, target, owner, refusal=refusal)


def _attach(
    ask: Ask, key: Key, route: routes.RouteObject, index: int | None, target: Key, owner: Key
) -> Attachment:
    """Check in order: the listener exists, it allows the route, and a hostname matches."""

    def refused(reason: Reason, message: str) -> Attachment:
        refusal = Finding(reason, f"{_where(index)}: {message}")
        return Attachment(index, target, owner, refusal=refusal)

    parent = implied_parent(target) if index is None else route.spec.parent_refs[index]
    parent_name = f"{target[0]} {target[1]}/{target[2]}"
    everyone = ask(listener_specs, owner)
    matching = [
        spec
        for spec in everyone
        if spec.owner == target
        and parent.section_name in (None, spec.name)
        and parent.port in (None, spec.port)
    ]
    if not matching:
        criteria = f" with sectionName {parent.section_name}" if parent.section_name else ""
        criteria += f" on port {parent.port}" if parent.port else ""
        message = f"listener{criteria} not found in {parent_name}"
        return refused(Reason.NO_MATCHING_PARENT, message)
    of_kind = [spec for spec in matching if key[0] in spec.kinds]
    allowed = [spec for spec in of_kind if admits(ask, spec.namespaces, key[1], target[1])]
    if not allowed:
        return refused(Reason.NOT_ALLOWED, _not_allowed(key, matching, of_kind))
    listener_hostnames, attached = [], []
    for spec in allowed:
        common = _common(key[0], route, spec)
        if common:
            attached.append(spec.key)
        listener_hostnames += [
            ListenerHostname(spec.port, spec.protocol, spec.key, name)
            for name in common
            if spec.accepted and not is_isolated(ask, owner, name, spec)
        ]
    if not attached:
        names = ", ".join(f"{spec.name} ({spec.hostname})" for spec in allowed)
        message = f"hostnames: no hostname matches listener {names}"
        return refused(Reason.NO_MATCHING_HOSTNAME, message)
    return Attachment(index, target, owner, tuple(listener_hostnames), tuple(attached))


def _not_allowed(
    key: Key, matching: list[ListenerProperties], of_kind: list[ListenerProperties]
) -> str:
    """Return why no listener allows a route: its kind, or its namespace."""
    names = ", ".join(spec.name for spec in of_kind or matching)
    if of_kind:
        return f"listener {names} does not allow {key[0]} from namespace {key[1]}"
    kinds = ", ".join(dict.fromkeys(kind for spec in matching for kind in spec.kinds)) or "no kind"
    return f"listener {names} does not allow routes of kind {key[0]}, only {kinds}"


def _common(kind: str, route: routes.RouteObject, spec: ListenerProperties) -> tuple[str, ...]:
    if kind not in HOSTNAME_KINDS:
        # Only connections to the hostname of the listener have its certificates.
        return (spec.hostname if spec.protocol == "TLS" else "",)
    names = [name.lower() for name in route.spec.hostnames] or [""]
    common = (hostnames.intersect(spec.hostname, name) for name in names)
    return tuple(dict.fromkeys(name for name in common if name is not None))


def is_isolated(ask: Ask, gateway: Key, name: str, spec: ListenerProperties) -> bool:
    """Return whether a more specific listener of the port owns ``name`` (listener isolation)."""
    own, family = hostnames.specificity(spec.hostname), PROTOCOLS[spec.protocol].family
    owned = ask(owned_hostnames, gateway)
    return any(
        (spec.port, family, hostname) in owned and hostnames.specificity(hostname) > own
        for hostname in (name, *hostnames.wider(name))
    )
