"""Statuses of routes, one entry for each parentRef that is ours."""

from __future__ import annotations

from gatehouse.apis import routes
from gatehouse.frontends.gateway_api.attaching.attachment import Attachment
from gatehouse.frontends.gateway_api.attaching.exclusion import attachments
from gatehouse.frontends.gateway_api.classes import controller_of
from gatehouse.frontends.gateway_api.extensions import effective
from gatehouse.frontends.gateway_api.findings import Finding, Reason, conditions
from gatehouse.frontends.gateway_api.inputs import Unsupported
from gatehouse.frontends.gateway_api.reporting.statuses import ParentStatus, RouteStatus
from gatehouse.frontends.gateway_api.routing import streams
from gatehouse.frontends.gateway_api.routing.rules import Translated, translate
from gatehouse.query import Ask, Key


def route_status(ask: Ask, key: Key) -> RouteStatus | None:
    """Give the wanted status of a route."""
    found = ask.read(key)
    if not isinstance(found, routes.Route):
        return None
    entries = ask(attachments, key)
    return RouteStatus(tuple(_parent_status(ask, key, found, entry) for entry in entries))


def _parent_status(ask: Ask, key: Key, route: routes.Route, entry: Attachment) -> ParentStatus:
    findings = [entry.refusal] if entry.refusal is not None else []
    if isinstance(route, routes.HTTPRoute | routes.GRPCRoute):
        place = entry.places[0] if entry.places else None
        port, protocol = (place.port, place.protocol) if place else (80, "HTTP")
        findings += _of_rules(ask(translate, (key, port, protocol)))
    else:
        findings += ask(streams.targets, key).findings
    unsupported = ask(unsupported_of, (entry.gateway, f"{key[1]}/{key[2]}/"))
    findings += [Finding(Reason.PARTIALLY_INVALID, message) for message in unsupported]
    findings += effective.affected(ask, key)
    defaults = (
        Finding(Reason.ACCEPTED, "the route is accepted"),
        Finding(Reason.RESOLVED, "all references are resolved"),
    )
    return ParentStatus(
        controller=ask(controller_of, entry.gateway),
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
