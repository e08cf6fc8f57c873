"""Events for conditions that turn bad, one for each transition.

A transition is a difference between the status in the API server and the one that replaces it. So a
condition that was bad before a restart of the controller is not recorded again. Only the leader
writes statuses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from gatehouse.apis.condition_parts import WARNING_REASONS, condition_parts, is_good
from gatehouse.compiler.frontends.gateway_api.findings import Reason
from gatehouse.kube.events import Recorder

_CERTIFICATE = Reason.CERTIFICATE_EXPIRED.condition_type

RECORDED_TYPES = frozenset(
    {"Accepted", "Conflicted", "ResolvedRefs", "Programmed", "PartiallyInvalid", _CERTIFICATE}
)
"""Types of the conditions that are recorded."""

START_SECONDS = 60.0
"""Time in seconds after the start in which data planes connect again. A Gateway that waits for them
is not recorded then."""

_Part = tuple[str, str]
"""Name of a part of the status, and condition type."""


class TurnedCondition(msgspec.Struct, frozen=True):
    """A condition that is bad now and was not before."""

    part: str
    type: str
    status: str
    reason: str
    message: str
    was_good: bool
    """False if the condition was unknown, or did not exist, before."""

    @property
    def text(self) -> str:
        """Message of the Event."""
        part = f"{self.part}: " if self.part else ""
        return f"{part}{self.type} is {self.status}: {self.message or self.reason}"


class ConditionEvents:
    """Records a Warning for each condition that turns bad, or will turn bad."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.monotonic) -> None:
        self._recorder, self._clock = recorder, clock
        self._started: float | None = None
        """Time of the first write, after which data planes connect; None before."""

    def status_written(
        self, obj: Mapping[str, Any], before: Mapping[str, Any] | None, after: Mapping[str, Any]
    ) -> None:
        """Record the transitions between two statuses of an object."""
        if self._started is None:
            self._started = self._clock()
        starting = self._clock() - self._started < START_SECONDS
        for turned in turned_bad(before or {}, after):
            waits = turned.type == "Programmed" and turned.reason == Reason.PENDING.reason
            if waits and (starting or not turned.was_good):
                continue
            self._recorder.record(obj, "Warning", turned.reason, turned.text)


_Severity = tuple[int, str]
_GOOD: _Severity = (0, "")


def turned_bad(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[TurnedCondition]:
    """Yield the conditions that are bad after a change and were not before.

    A condition of a listener that follows from that of its Gateway counts as good in both. So a
    problem of a listener's own is recorded, too, if the Gateway's condition turns good after it.
    """
    bad = [entry for entry in _severities(after) if entry[2] != _GOOD]
    if not bad:
        return
    known = {key: (condition, severity) for key, condition, severity in _severities(before)}
    for key, condition, severity in bad:
        old, earlier = known.get(key, ({}, _GOOD))
        if earlier == severity or earlier[0] > severity[0]:
            continue
        (part, kind), status = key, condition.get("status", "Unknown")
        reason, message = condition.get("reason", ""), condition.get("message", "")
        was_good = is_good(kind, old.get("status", "Unknown"))
        yield TurnedCondition(part, kind, status, reason or kind, message, was_good)


def _severities(
    status: Mapping[str, Any],
) -> Iterator[tuple[_Part, Mapping[str, Any], _Severity]]:
    """Yield the conditions of a status with their severities.

    A listener's condition follows from that of its Gateway unless it is worse. A Gateway may wait
    for its data plane while that rejects one listener.
    """
    whole: dict[str, int] = {}
    for (part, kind), condition in _recorded(status):
        severity = _severity(kind, condition)
        # The certificates of a Gateway towards backends are others than those of its listeners.
        if not part and kind != _CERTIFICATE:
            whole[kind] = max(severity[0], whole.get(kind, 0))
        if part.startswith("listener ") and severity[0] <= whole.get(kind, 0):
            severity = _GOOD
        yield (part, kind), condition, severity


def _severity(kind: str, condition: Mapping[str, Any]) -> _Severity:
    """Return 2 for a problem, 1 for a warning or something to wait for, else 0; with the reason of
    a warning.

    An unknown status is no problem.
    """
    status, reason = condition.get("status", "Unknown"), condition.get("reason", "")
    if status in ("True", "False") and not is_good(kind, status):
        return (1 if reason == Reason.PENDING.reason else 2), ""
    return (1, reason) if reason in WARNING_REASONS else _GOOD


def _recorded(status: Mapping[str, Any]) -> Iterator[tuple[_Part, Mapping[str, Any]]]:
    for part, conditions in condition_parts(dict(status)):
        for condition in conditions:
            kind = condition.get("type", "")
            if kind in RECORDED_TYPES:
                yield (part, kind), condition
