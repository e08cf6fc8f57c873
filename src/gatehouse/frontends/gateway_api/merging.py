"""From a wanted status to the one to write: times, others' entries, any difference. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.apis import gateway
from gatehouse.frontends.gateway_api.findings import Condition
from gatehouse.frontends.gateway_api.status import (
    ClassStatus,
    GatewayStatus,
    ListenerStatus,
    RouteStatus,
    Status,
)

Object = dict[str, Any]


def merge_status(current: Mapping[str, Any] | None, desired: Status, now: str) -> Object | None:
    """Give the whole status to write; None when ``current`` says the same.

    A condition keeps its time while its status is the same; entries of other controllers and
    conditions that we do not speak of stay. ``now``: RFC 3339.
    """
    before = dict(current or {})
    wanted: Object
    match desired:
        case ClassStatus():
            wanted = {
                "conditions": _conditions(before.get("conditions"), desired.conditions, now),
                "supportedFeatures": [{"name": name} for name in desired.features],
            }
        case GatewayStatus():
            wanted = _gateway(before, desired, now)
        case RouteStatus():
            parents = _parents(before.get("parents") or (), desired, now)
            if not parents and not before:
                # A route of somebody else's Gateways is none of our business.
                return None
            wanted = {"parents": parents}
    merged = {**before, **wanted}
    return None if merged == before else merged


def _conditions(current: Any, wanted: Sequence[Condition], now: str) -> list[Object]:
    before = {entry.get("type"): entry for entry in current or ()}
    # PartiallyInvalid is ours and goes when nothing is to be said; what others wrote stays.
    if not any(condition.type == "PartiallyInvalid" for condition in wanted):
        before.pop("PartiallyInvalid", None)
    # Everything keeps its place: two writers with an order of their own would never agree.
    found: dict[str, Object] = dict(before)
    for condition in wanted:
        entry: Object = msgspec.to_builtins(condition)
        known = before.get(condition.type, {})
        same = known.get("status") == condition.status
        entry["lastTransitionTime"] = known.get("lastTransitionTime", now) if same else now
        found[condition.type] = entry
    return list(found.values())


def _gateway(before: Object, desired: GatewayStatus, now: str) -> Object:
    listeners = {entry.get("name"): entry for entry in before.get("listeners") or ()}
    return {
        "addresses": [{"type": "IPAddress", "value": value} for value in desired.addresses],
        "conditions": _conditions(before.get("conditions"), desired.conditions, now),
        "listeners": [
            _listener(listeners.get(entry.name, {}), entry, now) for entry in desired.listeners
        ],
    }


def _listener(before: Mapping[str, Any], entry: ListenerStatus, now: str) -> Object:
    return {
        "name": entry.name,
        "supportedKinds": [{"group": gateway.GROUP, "kind": kind} for kind in entry.kinds],
        "attachedRoutes": entry.attached,
        "conditions": _conditions(before.get("conditions"), entry.conditions, now),
    }


def _parents(before: Sequence[Mapping[str, Any]], desired: RouteStatus, now: str) -> list[Object]:
    """Replace our entries where they stand, append new ones, drop those of ours not wanted."""
    wanted: list[tuple[Object, Sequence[Condition]]] = [
        (msgspec.to_builtins(parent.parent), parent.conditions) for parent in desired.parents
    ]
    found: list[Object] = []
    for entry in before:
        if entry.get("controllerName") != desired.controller:
            found.append(dict(entry))
            continue
        position = next(
            (i for i, (reference, _) in enumerate(wanted) if reference == entry.get("parentRef")),
            None,
        )
        if position is not None:
            reference, said = wanted.pop(position)
            found.append(_parent(reference, entry.get("conditions"), said, desired, now))
    found += [_parent(reference, None, said, desired, now) for reference, said in wanted]
    return found


def _parent(
    reference: Object, current: Any, said: Sequence[Condition], desired: RouteStatus, now: str
) -> Object:
    return {
        "parentRef": reference,
        "controllerName": desired.controller,
        "conditions": _conditions(current, said, now),
    }
