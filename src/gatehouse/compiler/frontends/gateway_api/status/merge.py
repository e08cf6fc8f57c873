"""From a wanted status to the one to write: times, others' entries, any difference. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.findings import OPTIONAL, Condition
from gatehouse.compiler.frontends.gateway_api.inputs import CONTROLLERS
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import GROUPS
from gatehouse.compiler.frontends.gateway_api.status.types import (
    ClassStatus,
    FilterStatus,
    GatewayStatus,
    ListenerStatus,
    PolicyStatus,
    RouteStatus,
    SetStatus,
    Status,
)
from gatehouse.incremental.query import Key

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
                "conditions": conditions(before.get("conditions"), desired.conditions, now),
                "supportedFeatures": [{"name": name} for name in desired.features],
            }
        case GatewayStatus():
            wanted = _gateway(before, desired, now)
        case SetStatus():
            wanted = {
                "conditions": conditions(before.get("conditions"), desired.conditions, now),
                "listeners": _listeners(before, desired.listeners, now),
            }
        case RouteStatus():
            ours = [
                _Ours(
                    each.controller,
                    {"parentRef": msgspec.to_builtins(each.parent)},
                    each.conditions,
                )
                for each in desired.parents
            ]
            parents = _entries(before.get("parents"), ours, now)
            if not parents and not before:
                # A route of somebody else's Gateways is none of our business.
                return None
            wanted = {"parents": parents}
        case PolicyStatus():
            ours = [
                _Ours(each.controller, {"ancestorRef": _reference(each.ancestor)}, each.conditions)
                for each in desired.ancestors
            ]
            ancestors = _entries(before.get("ancestors"), ours, now)
            if not ancestors and not before:
                return None
            wanted = {"ancestors": ancestors}
        case FilterStatus():
            ours = [_Ours(each, {}, desired.conditions) for each in desired.controllers]
            wanted = {"controllers": _entries(before.get("controllers"), ours, now)}
    merged = {**before, **wanted}
    return None if merged == before else merged


def conditions(
    current: Any, wanted: Sequence[Condition], now: str, optional: frozenset[str] = OPTIONAL
) -> list[Object]:
    """Give the conditions to write; those of ``optional`` types go when they are not wanted."""
    before = {entry.get("type"): entry for entry in current or ()}
    # What others wrote stays.
    for kind in optional - {condition.type for condition in wanted}:
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
        "conditions": conditions(before.get("conditions"), desired.conditions, now),
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
        "supportedKinds": [{"group": GROUPS[kind], "kind": kind} for kind in entry.kinds],
        "attachedRoutes": entry.attached,
        "conditions": conditions(before.get("conditions"), entry.conditions, now),
    }


def _reference(key: Key) -> Object:
    kind, namespace, name = key
    group = "" if kind == "Service" else gateway.GROUP
    return {"group": group, "kind": kind, "namespace": namespace, "name": name}


class _Ours(msgspec.Struct, frozen=True):
    """An entry of ours, where several controllers have entries of their own."""

    controller: str
    about: Object
    """The field that says what it is about, if there is more than one of each controller."""
    conditions: Sequence[Condition]

    def merged(self, current: Any, now: str) -> Object:
        merged = conditions(current, self.conditions, now)
        return {**self.about, "controllerName": self.controller, "conditions": merged}

    def same(self, known: Mapping[str, Any]) -> bool:
        about = {field: known.get(field) for field in self.about}
        return known.get("controllerName") == self.controller and about == self.about


def _entries(
    before: Sequence[Mapping[str, Any]] | None, ours: Sequence[_Ours], now: str
) -> list[Object]:
    """Replace our entries where they stand, append new ones, drop those of ours not wanted."""
    wanted, found = list(ours), list[Object]()
    for known in before or ():
        if known.get("controllerName") not in CONTROLLERS:
            found.append(dict(known))
            continue
        entry = next((each for each in wanted if each.same(known)), None)
        if entry is not None:
            wanted.remove(entry)
            found.append(entry.merged(known.get("conditions"), now))
    return found + [each.merged(None, now) for each in wanted]
