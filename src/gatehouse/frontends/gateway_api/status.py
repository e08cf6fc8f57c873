"""The statuses that we want objects to have: findings folded into conditions, per kind."""

from __future__ import annotations

import msgspec

from gatehouse.apis import gateway, meta
from gatehouse.frontends.gateway_api import listeners as listening
from gatehouse.frontends.gateway_api.assemble import gateway_addresses
from gatehouse.frontends.gateway_api.attachment import Attachment, attachments
from gatehouse.frontends.gateway_api.classes import classes, gateways, settings
from gatehouse.frontends.gateway_api.findings import (
    Condition,
    Finding,
    Reason,
    condition,
    conditions,
)
from gatehouse.frontends.gateway_api.inputs import ROUTES, DataPlane, Unsupported
from gatehouse.frontends.gateway_api.rules import Translated, translate
from gatehouse.query import Ask, Key

FEATURES = (
    "Gateway",
    "GatewayPort8080",
    "HTTPRoute",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ReferenceGrant",
)
"""Names of the features served, for ``status.supportedFeatures`` of a GatewayClass; sorted."""


class ClassStatus(msgspec.Struct, frozen=True, tag=True):
    """Of a GatewayClass."""

    conditions: tuple[Condition, ...]
    features: tuple[str, ...] = FEATURES


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


class ParentStatus(msgspec.Struct, frozen=True):
    """Of one parentRef of a route."""

    parent: gateway.ParentRef
    conditions: tuple[Condition, ...]


class RouteStatus(msgspec.Struct, frozen=True, tag=True):
    """Of a route: our entries among the parents."""

    controller: str
    parents: tuple[ParentStatus, ...] = ()


Status = ClassStatus | GatewayStatus | RouteStatus


def subjects(ask: Ask, _: str = "") -> tuple[Key, ...]:
    """Give every object whose status is ours to write."""
    routes = (key for key in ask.read(ROUTES))
    return (*ask(classes, ""), *ask(gateways, ""), *routes)


def status(ask: Ask, key: Key) -> Status | None:
    """Give the wanted status of an object; None for one that is none of our business."""
    match key[0]:
        case "GatewayClass":
            return _class_status(ask, key)
        case "Gateway":
            return _gateway_status(ask, key)
        case "HTTPRoute":
            return _route_status(ask, key)
    return None


def gateways_of_route(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Give our Gateways to which a route attached."""
    found = {entry.gateway for entry in ask(attachments, key) if entry.refusal is None}
    return tuple(sorted(found))


def _class_status(ask: Ask, key: Key) -> ClassStatus | None:
    found = ask.read(key)
    if not isinstance(found, gateway.GatewayClass):
        return None
    message = f"accepted by {ask(settings, '').controller_name}"
    accepted = Finding(Reason.ACCEPTED, message)
    return ClassStatus((condition(accepted, found.metadata.generation),))


def _gateway_status(ask: Ask, key: Key) -> GatewayStatus | None:
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return None
    generation = found.metadata.generation
    states = ask(listening.listeners, key)
    plane = ask.read(("DataPlane", key[1], key[2])) or DataPlane(
        programmed=False, message="waiting for the data plane"
    )
    attached = ask(attached_routes, key)
    served = [state for state in states if state.served]
    programmed = _programmed(plane, bool(served))
    return GatewayStatus(
        conditions=conditions((_accepted(found, states), programmed), (), generation),
        addresses=ask(gateway_addresses, key),
        listeners=tuple(
            _listener_status(state, attached.get(state.shape.name, 0), programmed, generation)
            for state in states
        ),
    )


def _accepted(found: gateway.Gateway, states: tuple[listening.ListenerState, ...]) -> Finding:
    asked = [entry.value for entry in found.spec.addresses if entry.value]
    if asked:
        message = f"spec.addresses: {', '.join(asked)}: addresses cannot be asked for yet"
        return Finding(Reason.UNSUPPORTED_ADDRESS, message)
    bad = [state for state in states if not state.shape.accepted]
    if not bad:
        return Finding(Reason.ACCEPTED, "the Gateway is accepted")
    names = ", ".join(state.shape.name for state in bad)
    message = f"spec.listeners: {names}: not valid; see their conditions"
    if len(bad) < len(states):
        return Finding(Reason.GATEWAY_SOME_LISTENERS_INVALID, message)
    return Finding(Reason.GATEWAY_LISTENERS_INVALID, message)


def _programmed(plane: DataPlane, served: bool) -> Finding:
    if not served:
        return Finding(Reason.NOT_PROGRAMMED, "spec.listeners: none can be served")
    if plane.programmed:
        return Finding(Reason.PROGRAMMED, "every data plane confirmed the configuration")
    reason = Reason.NOT_PROGRAMMED if plane.reason == "Invalid" else Reason.PENDING
    return Finding(reason, plane.message)


def _listener_status(
    state: listening.ListenerState, attached: int, programmed: Finding, generation: int
) -> ListenerStatus:
    defaults = (
        Finding(Reason.ACCEPTED, "the listener is accepted"),
        Finding(Reason.NO_CONFLICTS, "no other listener is in its way"),
        Finding(Reason.RESOLVED, "all references are resolved"),
    )
    if not state.served:
        programmed = Finding(Reason.NOT_PROGRAMMED, "the listener is not valid and not served")
    return ListenerStatus(
        name=state.shape.name,
        kinds=state.shape.kinds,
        attached=attached,
        conditions=conditions((*state.findings, programmed), defaults, generation),
    )


def attached_routes(ask: Ask, key: Key) -> dict[str, int]:
    """Count the routes attached to each listener of a Gateway."""
    counts: dict[str, int] = {}
    for route in ask.read(("@routes", key[1], key[2])):
        names = {
            name
            for entry in ask(attachments, route)
            if entry.gateway == key
            for name in entry.listeners
        }
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    return counts


def _route_status(ask: Ask, key: Key) -> RouteStatus | None:
    found = ask.read(key)
    controller = ask(settings, "").controller_name
    if isinstance(found, meta.Malformed) or not isinstance(found, gateway.HTTPRoute):
        return None
    entries = ask(attachments, key)
    return RouteStatus(
        controller, tuple(_parent_status(ask, key, found, entry) for entry in entries)
    )


def _parent_status(ask: Ask, key: Key, route: gateway.HTTPRoute, entry: Attachment) -> ParentStatus:
    place = entry.places[0] if entry.places else None
    port, protocol = (place.port, place.protocol) if place else (80, "HTTP")
    translated = ask(translate, (key, port, protocol))
    findings = [entry.refusal] if entry.refusal is not None else []
    findings += _of_rules(translated)
    unsupported = ask(unsupported_of, (entry.gateway, f"{key[1]}/{key[2]}/"))
    findings += [Finding(Reason.PARTIALLY_INVALID, message) for message in unsupported]
    defaults = (
        Finding(Reason.ACCEPTED, "the route is accepted"),
        Finding(Reason.RESOLVED, "all references are resolved"),
    )
    return ParentStatus(
        parent=route.spec.parent_refs[entry.index],
        conditions=conditions(tuple(findings), defaults, route.metadata.generation),
    )


def _of_rules(translated: Translated) -> list[Finding]:
    """Say what is not served: of the whole route, or of some rules while others are served."""
    found = []
    for finding in translated.findings:
        if finding.reason is Reason.UNSUPPORTED_VALUE and translated.whole:
            found.append(Finding(Reason.PARTIALLY_INVALID, f"Dropped Rule: {finding.message}"))
        else:
            found.append(finding)
    return found


def unsupported_of(ask: Ask, which: tuple[Key, str]) -> tuple[str, ...]:
    """Give what the back end cannot do of one route, whose rules' names begin with ``which[1]``."""
    found = ask.read(("Unsupported", which[0][1], which[0][2]))
    if not isinstance(found, Unsupported):
        return ()
    return tuple(
        dict.fromkeys(
            f"rules[{name.removeprefix(which[1]).split('/')[0]}]: {message}"
            for name, message in found.routes
            if name.startswith(which[1])
        )
    )
