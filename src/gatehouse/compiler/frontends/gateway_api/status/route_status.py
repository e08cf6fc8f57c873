"""Statuses of routes, with an entry for each parentRef to a managed Gateway, named or implied."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import attachments
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import Attachment
from gatehouse.compiler.frontends.gateway_api.backend_problems import (
    reported_problems,
    weight_problems,
)
from gatehouse.compiler.frontends.gateway_api.classes import class_controller
from gatehouse.compiler.frontends.gateway_api.extensions import effective
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason, fold_findings
from gatehouse.compiler.frontends.gateway_api.inputs import rejected_by_proxy, unsupported_key
from gatehouse.compiler.frontends.gateway_api.routes import l4_routes
from gatehouse.compiler.frontends.gateway_api.routes.rules import Translated, translate
from gatehouse.compiler.frontends.gateway_api.status.types import ParentStatus, RouteStatus
from gatehouse.compiler.frontends.gateway_api.status.unsupported import messages
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key


def gateways_of_route(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the managed Gateways to which a route is attached."""
    gateways = {entry.gateway for entry in ask(attachments, key) if entry.refusal is None}
    return tuple(sorted(gateways))


def route_status(ask: Ask, key: Key) -> RouteStatus | None:
    """Return the desired status of a route."""
    route_object = ask.read(key)
    if not isinstance(route_object, routes.RouteObject):
        return None
    entries = ask(attachments, key)
    return RouteStatus(tuple(_parent_status(ask, key, route_object, entry) for entry in entries))


def _parent_status(
    ask: Ask, key: Key, route: routes.RouteObject, entry: Attachment
) -> ParentStatus:
    findings = [entry.refusal] if entry.refusal is not None else []
    accepted = Finding(Reason.ACCEPTED, f"the route is accepted{weight_problems(route)}")
    if entry.refusal is not None and entry.refusal.reason is Reason.TOO_MANY_ROUTES:
        # Nothing else is derived from such a route, which saves its memory.
        return ParentStatus(
            controller=ask(class_controller, entry.gateway),
            parent=entry.reference(route),
            conditions=fold_findings(tuple(findings), (accepted,), route.metadata.generation),
        )
    if isinstance(route, routes.HTTPRoute | routes.GRPCRoute):
        reported = ask(_reported, entry.gateway, key)
        place = entry.listener_hostnames[0] if entry.listener_hostnames else None
        port, protocol = (place.port, place.protocol) if place else (80, "HTTP")
        translated = ask(translate, entry.gateway, key, port, protocol)
        findings += _of_rules(translated, reported, attached=entry.refusal is None)
        accepted = _with(accepted, reported.left_out)
        clusters = translated.clusters
    else:
        if rejected := rejected_by_proxy(ask, entry.gateway, key, tried=True):
            findings.append(Finding(Reason.UNSUPPORTED_VALUE, rejected))
        targets = ask(l4_routes.l4_backends, entry.gateway, key)
        findings += targets.findings
        clusters = targets.clusters
    findings += effective.affected(ask, entry.gateway, key)
    problems = reported_problems(ask, entry.gateway, route, clusters)
    defaults = (accepted, Finding(Reason.RESOLVED, f"all references are resolved{problems}"))
    return ParentStatus(
        controller=ask(class_controller, entry.gateway),
        parent=entry.reference(route),
        conditions=fold_findings(tuple(findings), defaults, route.metadata.generation),
    )


class _Reported(msgspec.Struct, frozen=True):
    """Unsupported parts of one route, reported by the back end."""

    dropped: frozenset[Origin] = frozenset()
    """Origins of IR routes that are not served."""
    messages: tuple[str, ...] = ()
    """Reasons, with the rules."""
    left_out: tuple[str, ...] = ()
    """Unsupported features of rules that are served."""


def _reported(ask: Ask, gateway: Key, key: Key) -> _Reported:
    """Return the parts of a route that a Gateway cannot serve."""
    parts = unsupported_key(ask, gateway, key)
    dropped = [part for part in parts if not part.served]
    return _Reported(
        frozenset(part.origin for part in dropped),
        _messages(dropped),
        _messages(part for part in parts if part.served),
    )


def _messages(entries: Iterable[Unsupported]) -> tuple[str, ...]:
    by_rule: dict[str, list[Unsupported]] = {}
    for entry in entries:
        by_rule.setdefault(entry.origin.part.partition(".")[0], []).append(entry)
    return tuple(f"{rule}: {why}" for rule, parts in by_rule.items() for why in messages(parts))


def _of_rules(translated: Translated, reported: _Reported, *, attached: bool) -> list[Finding]:
    """Return findings about rules that are not served, and about their references.

    PartiallyInvalid is set only for accepted routes that have valid and invalid rules
    (RouteConditionPartiallyInvalid).
    """
    invalid = [f.message for f in translated.findings if f.reason is Reason.UNSUPPORTED_VALUE]
    invalid = [*invalid, *reported.messages]
    dropped = translated.dropped | reported.dropped
    if not attached:
        result = []
    elif all(route.route.origin in dropped for route in translated.routes):
        result = [Finding(Reason.UNSUPPORTED_VALUE, message) for message in invalid]
    else:
        result = [Finding(Reason.PARTIALLY_INVALID, f"Dropped Rule: {rule}") for rule in invalid]
    others = (f for f in translated.findings if f.reason is not Reason.UNSUPPORTED_VALUE)
    return [*result, *others]


def _with(accepted: Finding, left_out: tuple[str, ...]) -> Finding:
    """Return the finding with the unsupported features appended."""
    if not left_out:
        return accepted
    return Finding(accepted.reason, f"{accepted.message}; not supported: {'; '.join(left_out)}")
