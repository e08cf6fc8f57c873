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
    match desired:
        case ClassStatus():
            wanted = {
                "conditions": _conditions(before.get("conditions"), desired.conditions, now),
                "supportedFeatures": [{"name": name} for name in desired.features],
            }
        case GatewayStatus():
            wanted = _gateway(before, desired, now)
        case RouteStatus():
            wanted = {"parents": _parents(before.get("parents") or (), desired, now)}
    merged = {**before, **wanted}
    return None if merged == before else merged


def _conditions(current: Any, wanted: Sequence[Condition], now: str) -> list[Object]:
    before = {entry.get("type"): entry for entry in current or ()}
    found: list[Object] = []
    for condition in wanted:
        entry: Object = msgspec.to_builtins(condition)
        known = before.pop(condition.type, {})
        same = known.get("status") == condition.status
        entry["lastTransitionTime"] = known.get("lastTransitionTime", now) if same else now
        found.append(entry)
    # PartiallyInvalid is ours and goes when nothing is to be said; what others wrote stays.
    found += [entry for kind, entry in before.items() if kind != "PartiallyInvalid"]
    return found


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
    ours = [entry for entry in before if entry.get("controllerName") == desired.controller]
    others = [dict(entry) for entry in before if entry.get("controllerName") != desired.controller]
    found = []
    for parent in desired.parents:
        reference = msgspec.to_builtins(parent.parent)
        known = next((entry for entry in ours if entry.get("parentRef") == reference), {})
        found.append(
            {
                "parentRef": reference,
                "controllerName": desired.controller,
                "conditions": _conditions(known.get("conditions"), parent.conditions, now),
            }
        )
    return others + found
