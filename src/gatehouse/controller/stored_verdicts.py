"""Verdicts of an earlier controller about objects, as their statuses store them. No I/O.

A new controller knows no configuration that is good. It must not publish again what a proxy
rejected before, and must not suspect what an earlier controller has seen in service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import repeat
from typing import Any

import msgspec

from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.gateway_api import ProgrammedInput
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.held_back import objects_of_gateway
from gatehouse.controller.programmed_condition import Incomplete, ProgrammedState
from gatehouse.controller.quarantined_routes import configured_routes
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Key

REJECTED_BY = "rejected by "
"""Start of the reasons of a quarantine. The name and version of the proxy follow."""

OF_MATCH = "match "
"""Before the reason in a message: the match itself is rejected, so that nothing is matched."""

_AT_GATEWAY = re.compile(r"not served by Gateway ([^/\s]+)/([^:\s]+): ")
_RULE = re.compile(r"(?:^|; )(?:Dropped Rule: )?(?:(rules\[\d+\]): )?(match )?(?=rejected by )")
"""Start of a rejection in a message, which may join several."""
_PARAMETERS = re.compile(r"(\w+) ([^/\s]+)/([^:\s]+): (?=rejected by )")
"""Parameters objects have no status; that of their Gateway names them."""
_NOT_PROGRAMMED = ProgrammedState(ProgrammedInput(programmed=False))
_KINDS = frozenset(resource.kind for resource in combined.KINDS.with_status) - {"Gateway"}


_REFERENCES = {"parents": "parentRef", "ancestors": "ancestorRef", "controllers": ""}
"""Field of an entry that refers to an object, by the field of the status with such entries."""


_ConditionAt = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A condition, and what its entry of the status refers to."""


class StatusHistory(IntEnum):
    """Status of an object when this controller saw it first. The least is the most suspect."""

    NEW = 0
    """It had no status: data planes serve nothing of it."""
    REJECTED = 1
    """A proxy rejected it, or an earlier generation of it."""
    CHANGED = 2
    """It was edited after its status was written: data planes serve an earlier generation."""
    SERVED = 3
    """Data planes serve it as it is, or it has no status."""


class StoredRejection(msgspec.Struct, frozen=True):
    """Rejection of an object with its present generation."""

    gateway: Key | None
    """The Gateway whose proxy rejected it; None if the status does not name it."""
    part: str
    """``rules[n]``, or empty for the whole object."""
    reason: str
    unsure: bool = False
    """True if the object may have changed since."""
    in_match: bool = False
    """True if the match of a route is rejected."""


class StoredVerdicts:
    """The objects whose status does not say that they are served, and those that were rejected."""

    def __init__(self) -> None:
        self._histories: dict[Key, StatusHistory] = {}
        """All but those that are served."""
        self._rejections: dict[Key, tuple[StoredRejection, ...]] = {}
        self._parameters: dict[Key, tuple[Key, StoredRejection]] = {}
        """Rejected parameters by Gateway."""
        self._programmed: dict[Key, ProgrammedState] = {}
        """By Gateway, what its condition tells."""

    def record(self, key: Key, raw: Mapping[str, Any] | None) -> None:
        """Record the status of an object from the API server; None for ``raw``: deleted."""
        if key[0] == "Gateway":
            self._record_gateway(key, raw or {})
        if key[0] not in _KINDS:
            return
        if raw is None:
            self._histories.pop(key, None)
            self._rejections.pop(key, None)
            return
        conditions = _conditions(raw)
        rejected = [pair for pair in conditions if REJECTED_BY in pair[0].get("message", "")]
        self._rejections.pop(key, None)
        if rejected and (rejections := tuple(_rejections(key, raw, rejected))):
            self._rejections[key] = rejections
        known = self._histories.get(key, StatusHistory.SERVED)
        if known is StatusHistory.NEW:
            # It stays so when this controller writes its status, which may be before an instance is
            # connected.
            return
        history = _history(raw, conditions, rejected=bool(rejected))
        if history < known:
            self._histories[key] = history

    def _record_gateway(self, gateway: Key, raw: Mapping[str, Any]) -> None:
        self._parameters.pop(gateway, None)
        self._programmed.pop(gateway, None)
        for condition in (raw.get("status") or {}).get("conditions") or ():
            message = condition.get("message", "")
            if condition["type"] == "Programmed":
                confirmed = condition["status"] == "True"
                self._programmed[gateway] = ProgrammedState(
                    _NOT_PROGRAMMED.state,
                    condition.get("observedGeneration", 0) if confirmed else 0,
                    Incomplete.since(message),
                )
            if condition["type"] == "Accepted" and (start := _PARAMETERS.search(message)):
                rejection = StoredRejection(gateway, "", message[start.end() :], unsure=True)
                self._parameters[gateway] = (start.groups(), rejection)

    def programmed_state(self, gateway: Key) -> ProgrammedState:
        """Return the state of a Gateway whose instances are not known yet: the generation that they
        confirmed, and since when objects are missing."""
        return self._programmed.get(gateway, _NOT_PROGRAMMED)

    def history(self, key: Key) -> StatusHistory:
        """Return the history of an object."""
        return self._histories.get(key, StatusHistory.SERVED)

    def rejections(self, gateway: Key) -> list[tuple[Key, StoredRejection]]:
        """Return the objects that the proxy of a Gateway rejected."""
        result = [
            (key, rejection)
            for key, rejections in sorted(self._rejections.items())
            for rejection in rejections
            if rejection.gateway in (None, gateway)
        ]
        parameters = self._parameters.get(gateway)
        return [*result, parameters] if parameters is not None else result


def _conditions(raw: Mapping[str, Any]) -> list[_ConditionAt]:
    """Return the conditions of a status that Gatehouse wrote, each with what it refers to."""
    status = raw.get("status") or {}
    conditions: list[_ConditionAt] = []
    for field in status.keys() & _REFERENCES.keys():
        for entry in status[field] or ():
            if entry.get("controllerName") in CONTROLLERS:
                reference = entry.get(_REFERENCES[field]) or {}
                conditions += zip(entry.get("conditions") or (), repeat(reference))
    return conditions


def _history(
    raw: Mapping[str, Any], conditions: Sequence[_ConditionAt], *, rejected: bool
) -> StatusHistory:
    """Return the history of an object with the conditions of its status."""
    if not conditions:
        return StatusHistory.NEW
    if rejected:
        return StatusHistory.REJECTED
    generation = raw["metadata"].get("generation")
    if any(item.get("observedGeneration") != generation for item, _ in conditions):
        return StatusHistory.CHANGED
    return StatusHistory.SERVED


def _rejections(
    key: Key, raw: Mapping[str, Any], rejected: Iterable[_ConditionAt]
) -> Iterator[StoredRejection]:
    """Yield the rejections of the present generation of an object."""
    for condition, reference in rejected:
        gateway = None
        if reference and reference.get("kind", "Gateway") == "Gateway":
            namespace = reference.get("namespace") or key[1]
            gateway = ("Gateway", namespace, reference.get("name", ""))
        if condition.get("observedGeneration") == raw["metadata"].get("generation"):
            yield from _parse(gateway, condition["message"])


def _parse(gateway: Key | None, message: str) -> Iterator[StoredRejection]:
    at_gateway = _AT_GATEWAY.match(message)
    if at_gateway is not None:
        gateway, message = ("Gateway", *at_gateway.groups()), message[at_gateway.end() :]
    starts = list(_RULE.finditer(message))
    for start, end in zip(starts, [*starts[1:], None], strict=False):
        reason = message[start.end() : end.start() if end is not None else None]
        yield StoredRejection(gateway, start[1] or "", reason, in_match=start[2] is not None)


def stored_parts(
    gateway: ir.GatewayConfiguration, stored: Sequence[tuple[Key, StoredRejection]]
) -> Iterator[tuple[Suspect, list[Route], str, bool]]:
    """Yield what a configuration has of rejected objects.

    Each is a part with its routes (none for policies, filters, parameters and L4 routes), the
    reason, and whether it must be tried again: a status names the rule, not the match.
    """
    rules: dict[tuple[Origin, str], StoredRejection] = {}
    for key, rejection in stored:
        if rejection.part:
            rule = (object_of(key), rejection.part)
            # 500 is safer than another route's answer.
            in_match = rejection.in_match and rules.get(rule, rejection).in_match
            rules[rule] = msgspec.structs.replace(rejection, in_match=in_match)
    matches: dict[tuple[Origin, str], dict[Origin, list[Route]]] = {}
    for route in configured_routes(gateway) if rules else ():
        rule = (route.origin.whole, route.origin.part.partition(".")[0])
        if rule in rules:
            matches.setdefault(rule, {}).setdefault(route.origin, []).append(route)
    for rule, by_match in matches.items():
        for origin, routes in by_match.items():
            more = len(by_match) > 1
            part = Suspect(origin, in_match=rules[rule].in_match and not more)
            yield part, routes, rules[rule].reason, more
    objects = {object_of(key): rejection for key, rejection in stored if not rejection.part}
    for origin in sorted(objects.keys() & objects_of_gateway(gateway) if objects else ()):
        yield Suspect(origin), [], objects[origin].reason, objects[origin].unsure
