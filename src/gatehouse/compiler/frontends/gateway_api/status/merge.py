"""Merge of a desired status with the current one: times, entries of others, changes. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.apis import gateway
from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.compiler.frontends.gateway_api.findings import OPTIONAL_CONDITIONS, Condition
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import KIND_GROUPS
from gatehouse.compiler.frontends.gateway_api.status.types import (
    ClassStatus,
    FilterStatus,
    GatewayApiStatus,
    GatewayStatus,
    ListenerStatus,
    PolicyStatus,
    RouteStatus,
    SetStatus,
)
from gatehouse.incremental.query import Key
from kube_base.types.objects import Object


def merge_gateway_api_status(
    current: Mapping[str, Any] | None, desired: GatewayApiStatus, now: str
) -> Object | None:
    """Return the whole status to write; None if ``current`` is up to date.

    A condition keeps its time while its status is unchanged. Entries of other controllers and
    conditions of unknown types are kept. ``now``: RFC 3339.
    """
    before = dict(current or {})
    desired_status: Object
    match desired:
        case ClassStatus():
            desired_status = {
                "conditions": merge_conditions(before.get("conditions"), desired.conditions, now),
                "supportedFeatures": [{"name": name} for name in desired.features],
            }
        case GatewayStatus():
            desired_status = _gateway(before, desired, now)
        case SetStatus():
            desired_status = {
                "conditions": merge_conditions(before.get("conditions"), desired.conditions, now),
                "listeners": _listeners(before, desired.listeners, now),
            }
        case RouteStatus():
            own = [
                _OwnEntry(e.controller, {"parentRef": msgspec.to_builtins(e.parent)}, e.conditions)
                for e in desired.parents
            ]
            parents = _entries(before.get("parents"), own, now)
            if not parents and not before:
                # All Gateways of the route belong to other controllers.
                return None
            desired_status = {"parents": parents}
        case PolicyStatus():
            about_gateways = _about_gateways(before, desired, now)
            if about_gateways is None:
                return None
            desired_status = about_gateways
        case FilterStatus():
            own = [_OwnEntry(name, {}, conditions) for name, conditions in desired.controllers]
            desired_status = {"controllers": _entries(before.get("controllers"), own, now)}
    merged = {**before, **desired_status}
    return None if merged == before else merged


def _about_gateways(before: Object, desired: PolicyStatus, now: str) -> Object | None:
    """Return the list of entries about Gateways; None if there was none and is none.

    The API server rejects a status with more entries than the limit.
    """
    field, about = desired.fields
    present = before.get(field) or ()
    others = sum(entry.get("controllerName") not in CONTROLLERS for entry in present)
    own = [
        _OwnEntry(e.controller, {about: _reference(e.ancestor, e.group)}, e.conditions)
        for e in desired.ancestors[: max(desired.limit - others, 0)]
    ]
    entries = _entries(present, own, now)
    return {field: entries} if entries or before else None


def merge_conditions(
    current: Any,
    desired: Sequence[Condition],
    now: str,
    optional: frozenset[str] = OPTIONAL_CONDITIONS,
) -> list[Object]:
    """Return the merged conditions. Types of ``optional`` that are not desired are removed."""
    before = {entry.get("type"): entry for entry in current or ()}
    # Conditions of other writers are kept.
    for kind in optional - {condition.type for condition in desired}:
        before.pop(kind, None)
    # The order is kept: two writers with different orders would overwrite each other forever.
    merged: dict[str, Object] = dict(before)
    for condition in desired:
        entry: Object = msgspec.to_builtins(condition)
        known = before.get(condition.type, {})
        same = known.get("status") == condition.status
        entry["lastTransitionTime"] = known.get("lastTransitionTime", now) if same else now
        merged[condition.type] = entry
    return list(merged.values())


def _gateway(before: Object, desired: GatewayStatus, now: str) -> Object:
    status: Object = {
        "addresses": [
            {"type": "IPAddress", "value": address.value}
            | ({} if address.routability is None else {"routability": address.routability})
            for address in desired.addresses
        ],
        "conditions": merge_conditions(before.get("conditions"), desired.conditions, now),
        "listeners": _listeners(before, desired.listeners, now),
    }
    if desired.sets or "attachedListenerSets" in before:
        status["attachedListenerSets"] = desired.sets
    return status


def _listeners(before: Object, desired: Sequence[ListenerStatus], now: str) -> list[Object]:
    known = {entry.get("name"): entry for entry in before.get("listeners") or ()}
    return [_listener(known.get(entry.name, {}), entry, now) for entry in desired]


def _listener(before: Mapping[str, Any], entry: ListenerStatus, now: str) -> Object:
    return {
        "name": entry.name,
        "supportedKinds": [{"group": KIND_GROUPS[kind], "kind": kind} for kind in entry.kinds],
        "attachedRoutes": entry.attached,
        "conditions": merge_conditions(before.get("conditions"), entry.conditions, now),
    }


def _reference(key: Key, group: str) -> Object:
    kind, namespace, name = key
    of_kind = "" if kind == "Service" else gateway.GATEWAY_API_GROUP
    return {"group": group or of_kind, "kind": kind, "namespace": namespace, "name": name}


class _OwnEntry(msgspec.Struct, frozen=True):
    """An entry of this controller in a list shared with other controllers."""

    controller: str
    about: Object
    """Field that identifies the entry, if a controller can have several; else empty."""
    conditions: Sequence[Condition]

    def merged(self, current: Any, now: str) -> Object:
        merged = merge_conditions(current, self.conditions, now)
        return {**self.about, "controllerName": self.controller, "conditions": merged}

    def same(self, known: Mapping[str, Any]) -> bool:
        about = {field: known.get(field) for field in self.about}
        return known.get("controllerName") == self.controller and about == self.about


def _entries(
    before: Sequence[Mapping[str, Any]] | None, own: Sequence[_OwnEntry], now: str
) -> list[Object]:
    """Replace entries of this controller in place, append new ones, remove those not desired."""
    remaining, entries = list(own), list[Object]()
    for known in before or ():
        if known.get("controllerName") not in CONTROLLERS:
            entries.append(dict(known))
            continue
        entry = next((candidate for candidate in remaining if candidate.same(known)), None)
        if entry is not None:
            remaining.remove(entry)
            entries.append(entry.merged(known.get("conditions"), now))
    return entries + [own_entry.merged(None, now) for own_entry in remaining]
