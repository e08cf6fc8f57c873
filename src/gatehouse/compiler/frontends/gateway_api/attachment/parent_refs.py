"""parentRefs: the listeners and hostnames that a route attaches to, or why it does not."""

from __future__ import annotations

import msgspec

from gatehouse.apis import gateway, routes
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.allowed_namespaces import admits
from gatehouse.compiler.frontends.gateway_api.classes import is_managed
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import listener_sets
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import (
    ListenerSpec,
    listener_specs,
)
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import PROTOCOLS
from gatehouse.incremental.query import Ask, Key

HOSTNAME_KINDS = ("HTTPRoute", "GRPCRoute", "TLSRoute")
"""Kinds of routes that are selected by hostname."""

Listener = tuple[Key, str]
"""Owner (Gateway or ListenerSet) and name: unique among all listeners of a Gateway."""


class ListenerHostname(msgspec.Struct, frozen=True):
    """A hostname of a listener under which a route is served."""

    port: int
    protocol: str
    listener: Listener
    hostname: str


class Attachment(msgspec.Struct, frozen=True):
    """Result of one parentRef that refers to a managed Gateway."""

    index: int
    """Index of the parentRef in the route's spec."""
    parent: Key
    """The Gateway or ListenerSet that the parentRef names."""
    gateway: Key
    listener_hostnames: tuple[ListenerHostname, ...] = ()
    listeners: tuple[Listener, ...] = ()
    """The listeners that the route attached to; counted in their status."""
    refusal: Finding | None = None


def parent_results(ask: Ask, key: Key) -> tuple[Attachment, ...]:
    """Return the result of each parentRef of a route, not considering other routes.

    parentRefs to Gateways of other controllers are omitted.
    """
    route = ask.read(key)
    if not isinstance(route, routes.Route):
        return ()
    results = []
    for index, parent in enumerate(route.spec.parent_refs):
        kind = parent.kind or "Gateway"
        if parent.group not in (None, gateway.GROUP) or kind not in ("Gateway", "ListenerSet"):
            continue
        target: Key = (kind, parent.namespace or key[1], parent.name)
        owner = target if kind == "Gateway" else ask(listener_sets.parent_of, target)
        if owner is not None and ask(is_managed, owner):
            results.append(_attach(ask, key, route, index, target, owner))
    return tuple(results)


def _attach(
    ask: Ask, key: Key, route: routes.Route, index: int, target: Key, owner: Key
) -> Attachment:
    """Check in order: the listener exists, it allows the route, and a hostname matches."""

    def refused(reason: Reason, message: str) -> Attachment:
        refusal = Finding(reason, f"parentRefs[{index}]: {message}")
        return Attachment(index, target, owner, refusal=refusal)

    parent = route.spec.parent_refs[index]
    shown = f"{target[0]} {target[1]}/{target[2]}"
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
        message = f"listener{criteria} not found in {shown}"
        return refused(Reason.NO_MATCHING_PARENT, message)
    allowed = [
        spec
        for spec in matching
        if key[0] in spec.kinds and admits(ask, spec.namespaces, key[1], target[1])
    ]
    if not allowed:
        names = ", ".join(spec.name for spec in matching)
        message = f"listener {names} does not allow {key[0]} from namespace {key[1]}"
        return refused(Reason.NOT_ALLOWED, message)
    listener_hostnames, attached = [], []
    for spec in allowed:
        common = _common(key[0], route, spec)
        if common:
            attached.append(spec.key)
        listener_hostnames += [
            ListenerHostname(spec.port, spec.protocol, spec.key, name)
            for name in common
            if spec.accepted and not is_isolated(name, spec, everyone)
        ]
    if not attached:
        names = ", ".join(spec.name for spec in allowed)
        message = f"hostnames: no hostname matches listener {names}"
        return refused(Reason.NO_MATCHING_HOSTNAME, message)
    return Attachment(index, target, owner, tuple(listener_hostnames), tuple(attached))


def _common(kind: str, route: routes.Route, spec: ListenerSpec) -> tuple[str, ...]:
    if kind not in HOSTNAME_KINDS:
        return ("",)
    names = [name.lower() for name in route.spec.hostnames] or [""]
    common = (hostnames.intersect(spec.hostname, name) for name in names)
    return tuple(dict.fromkeys(name for name in common if name is not None))


def is_isolated(name: str, spec: ListenerSpec, everyone: tuple[ListenerSpec, ...]) -> bool:
    """Return whether a more specific listener of the port owns ``name`` (listener isolation)."""
    own, family = hostnames.specificity(spec.hostname), PROTOCOLS[spec.protocol].family
    return any(
        other.port == spec.port
        and other.accepted
        and PROTOCOLS[other.protocol].family == family
        and hostnames.specificity(other.hostname) > own
        and hostnames.covers(other.hostname, name)
        for other in everyone
    )
