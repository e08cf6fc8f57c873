"""Which listeners a route attaches to, and under which hostnames; or why it does not."""

from __future__ import annotations

import msgspec

from gatehouse.apis import core, gateway
from gatehouse.frontends.gateway_api import hostnames
from gatehouse.frontends.gateway_api.classes import gateways
from gatehouse.frontends.gateway_api.findings import Finding, Reason
from gatehouse.frontends.gateway_api.listeners import Shape, shapes
from gatehouse.query import Ask, Key


class Place(msgspec.Struct, frozen=True):
    """One hostname of one listener under which a route is served."""

    port: int
    protocol: str
    listener: str
    hostname: str


class Attachment(msgspec.Struct, frozen=True):
    """What became of one parentRef that names one of our Gateways."""

    index: int
    """Of the parentRef in the route's spec."""
    gateway: Key
    places: tuple[Place, ...] = ()
    listeners: tuple[str, ...] = ()
    """The listeners it attached to; counted in their status."""
    refusal: Finding | None = None


def attachments(ask: Ask, key: Key) -> tuple[Attachment, ...]:
    """Give what became of each parentRef of a route; those of others' Gateways are left out."""
    route = ask.read(key)
    if not isinstance(route, gateway.HTTPRoute):
        return ()
    found = []
    for index, parent in enumerate(route.spec.parent_refs):
        if parent.group not in (None, gateway.GROUP) or parent.kind not in (None, "Gateway"):
            continue
        target: Key = ("Gateway", parent.namespace or key[1], parent.name)
        if target in ask(gateways, ""):
            found.append(_attach(ask, key, route, index, target))
    return tuple(found)


def _attach(ask: Ask, key: Key, route: gateway.HTTPRoute, index: int, target: Key) -> Attachment:
    """Walk the ladder: is there such a listener, may the route attach, is a name in common?"""
    parent = route.spec.parent_refs[index]
    everyone = ask(shapes, target)
    where = f"parentRefs[{index}]"
    matching = [
        shape
        for shape in everyone
        if parent.section_name in (None, shape.name) and parent.port in (None, shape.port)
    ]
    if not matching:
        wanted = f"sectionName {parent.section_name}" if parent.section_name else ""
        wanted += f" port {parent.port}" if parent.port else ""
        message = f"{where}: Gateway {target[1]}/{target[2]} has no listener {wanted.strip()}"
        return _refused(index, target, Reason.NO_MATCHING_PARENT, message.strip())
    allowed = [shape for shape in matching if _allowed(ask, shape, key, target[1])]
    if not allowed:
        names = ", ".join(shape.name for shape in matching)
        message = f"{where}: listener {names} allows no HTTPRoute of namespace {key[1]}"
        return _refused(index, target, Reason.NOT_ALLOWED, message)
    places, joined = [], []
    for shape in allowed:
        common = _common(route, shape)
        if common:
            joined.append(shape.name)
        places += [
            Place(shape.port, shape.protocol, shape.name, name)
            for name in common
            if shape.accepted and not _isolated(name, shape, everyone)
        ]
    if not joined:
        names = ", ".join(shape.name for shape in allowed)
        message = f"{where}: hostnames has no name in common with listener {names}"
        return _refused(index, target, Reason.NO_MATCHING_HOSTNAME, message)
    return Attachment(index, target, tuple(places), tuple(joined))


def _refused(index: int, target: Key, reason: Reason, message: str) -> Attachment:
    return Attachment(index, target, refusal=Finding(reason, message))


def _common(route: gateway.HTTPRoute, shape: Shape) -> tuple[str, ...]:
    names = [name.lower() for name in route.spec.hostnames] or [""]
    found = (hostnames.intersect(shape.hostname, name) for name in names)
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _isolated(name: str, shape: Shape, everyone: tuple[Shape, ...]) -> bool:
    """Whether a more specific listener of the port owns ``name`` (listener isolation)."""
    own = hostnames.specificity(shape.hostname)
    return any(
        other.port == shape.port
        and other.accepted
        and hostnames.specificity(other.hostname) > own
        and hostnames.covers(other.hostname, name)
        for other in everyone
    )


def _allowed(ask: Ask, shape: Shape, key: Key, gateway_namespace: str) -> bool:
    if key[0] not in shape.kinds:
        return False
    match shape.namespaces.from_:
        case "All":
            return True
        case "Same":
            return key[1] == gateway_namespace
        case "Selector":
            selector = shape.namespaces.selector
            return selector is not None and _selects(selector, ask(labels_of, key[1]))
    return False


def labels_of(ask: Ask, namespace: str) -> dict[str, str] | None:
    """Give the labels of a namespace; None if it does not exist."""
    found = ask.read(("Namespace", "", namespace))
    return found.metadata.labels if isinstance(found, core.Namespace) else None


def _selects(selector: gateway.LabelSelector, labels: dict[str, str] | None) -> bool:
    if labels is None or not selector.match_labels.items() <= labels.items():
        return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions)


def _holds(requirement: gateway.SelectorRequirement, labels: dict[str, str]) -> bool:
    present = requirement.key in labels
    match requirement.operator:
        case "In":
            return present and labels[requirement.key] in requirement.values
        case "NotIn":
            return not present or labels[requirement.key] not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
    return False
