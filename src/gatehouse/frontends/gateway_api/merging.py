"""From a wanted status to the one to write: times, others' entries, any difference. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.apis import gateway
from gatehouse.frontends.gateway_api.findings import OPTIONAL, Condition
from gatehouse.frontends.gateway_api.statuses import (
    ClassStatus,
    FilterStatus,
    GatewayStatus,
    ListenerStatus,
    PolicyStatus,
    RouteStatus,
    SetStatus,
    Status,
)
from gatehouse.query import Key

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
        case SetStatus():
            wanted = {
                "conditions": _conditions(before.get("conditions"), desired.conditions, now),
                "listeners": _listeners(before, desired.listeners, now),
            }
        case RouteStatus():
            ours = [(msgspec.to_builtins(p.parent), p.conditions) for p in desired.parents]
            parents = _entries(before.get("parents"), "parentRef", ours, desired.controller, now)
            if not parents and not before:
                # A route of somebody else's Gateways is none of our business.
                return None
            wanted = {"parents": parents}
        case PolicyStatus():
            ours = [(_reference(a.ancestor), a.conditions) for a in desired.ancestors]
            before_us = before.get("ancestors")
            ancestors = _entries(before_us, "ancestorRef", ours, desired.controller, now)
            if not ancestors and not before:
                return None
            wanted = {"ancestors": ancestors}
        case FilterStatus():
            before_us = before.get("controllers")
            ours = [({}, desired.conditions)]
            wanted = {"controllers": _entries(before_us, "", ours, desired.controller, now)}
    merged = {**before, **wanted}
    return None if merged == before else merged


def _conditions(current: Any, wanted: Sequence[Condition], now: str) -> list[Object]:
    before = {entry.get("type"): entry for entry in current or ()}
    # What others wrote stays.
    for kind in OPTIONAL - {condition.type for condition in wanted}:
        before.pop(kind, None)
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
    found: Object = {
        "addresses": [{"type": "IPAddress", "value": value} for value in desired.addresses],
        "conditions": _conditions(before.get("conditions"), desired.conditions, now),
        "listeners": _listeners(before, desired.listeners, now),
    }
    if desired.sets or "attachedListenerSets" in before:
        found["attachedListenerSets"] = desired.sets
    return found


def _listeners(before: Object, wanted: Sequence[ListenerStatus], now: str) -> list[Object]:
    known = {entry.get("name"): entry for entry in before.get("listeners") or ()}
    return [_listener(known.get(entry.name, {}), entry, now) for entry in wanted]


def _listener(before: Mapping[str, Any], entry: ListenerStatus, now: str) -> Object:
    return {
        "name": entry.name,
        "supportedKinds": [{"group": gateway.GROUP, "kind": kind} for kind in entry.kinds],
        "attachedRoutes": entry.attached,
        "conditions": _conditions(before.get("conditions"), entry.conditions, now),
    }


def _reference(key: Key) -> Object:
    kind, namespace, name = key
    group = "" if kind == "Service" else gateway.GROUP
    return {"group": group, "kind": kind, "namespace": namespace, "name": name}


def _entries(
    before: Sequence[Mapping[str, Any]] | None,
    field: str,
    ours: Sequence[tuple[Object, Sequence[Condition]]],
    controller: str,
    now: str,
) -> list[Object]:
    """Replace our entries where they stand, append new ones, drop those of ours not wanted.

    ``field`` names what an entry is about; empty where there is one of each controller.
    """
    wanted, found = list(ours), list[Object]()

    def entry(reference: Object, current: Any, said: Sequence[Condition]) -> Object:
        conditions = _conditions(current, said, now)
        named = {field: reference} if field else {}
        return {**named, "controllerName": controller, "conditions": conditions}

    for known in before or ():
        if known.get("controllerName") != controller:
            found.append(dict(known))
            continue
        position = next(
            (i for i, (reference, _) in enumerate(wanted) if reference == known.get(field, {})),
            None,
        )
        if position is not None:
            reference, said = wanted.pop(position)
            found.append(entry(reference, known.get("conditions"), said))
    found += [entry(reference, None, said) for reference, said in wanted]
    return found
