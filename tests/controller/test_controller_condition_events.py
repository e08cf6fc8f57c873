"""Events for conditions that turn bad: one for each transition."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest

from gatehouse.controller.condition_events import START_SECONDS, ConditionEvents
from gatehouse.kube.events import Recorder

Object = dict[str, Any]
ROUTE = {"kind": "HTTPRoute", "metadata": {"namespace": "ns", "name": "r"}}


class FakeRecorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def record(self, _: Object, type_: str, reason: str, message: str) -> None:
        assert type_ == "Warning"
        self.events.append((reason, message))


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.recorder = FakeRecorder()
        recorder = cast(Recorder, self.recorder)
        self._events = ConditionEvents(recorder, lambda: self.now)

    def write(self, before: Object | None, after: Object) -> list[tuple[str, str]]:
        """Return the Events of a write."""
        self.recorder.events.clear()
        self._events.status_written(ROUTE, before, after)
        return list(self.recorder.events)


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Object:
    return {"type": kind, "status": status, "reason": reason or kind, "message": message}


def parent(*conditions: Object, name: str = "web") -> Object:
    return {"parents": [{"parentRef": {"name": name}, "conditions": list(conditions)}]}


GOOD = parent(condition("Accepted", "True"), condition("ResolvedRefs", "True"))
BAD = parent(
    condition("Accepted", "True"),
    condition("ResolvedRefs", "False", "BackendNotFound", "Service ns/a not found"),
)
EVENT = ("BackendNotFound", "at web: ResolvedRefs is False: Service ns/a not found")


def test_condition_that_turns_bad_is_recorded_once_per_transition() -> None:
    world = World()
    assert world.write(GOOD, BAD) == [EVENT]
    other = parent(condition("ResolvedRefs", "False", "RefNotPermitted", "Service ns/b"))
    assert world.write(BAD, other) == []
    assert world.write(BAD, GOOD) == []
    assert world.write(GOOD, BAD) == [EVENT]


def test_each_warning_about_certificates_is_recorded() -> None:
    world, kind = World(), "gatehouse.dev/CertificateValid"
    some, soon = (condition(kind, "True", reason) for reason in ("SomeExpired", "ExpiresSoon"))
    bad = condition(kind, "False", "Expired")
    for before, after, reasons in (
        ([], [some], ["SomeExpired"]),
        ([some], [some], []),
        ([some], [soon], ["ExpiresSoon"]),
        ([soon], [bad], ["Expired"]),
        ([bad], [some], []),
    ):
        events = world.write(parent(*before), parent(*after))
        assert [reason for reason, _ in events] == reasons


def test_rejected_new_object_is_recorded() -> None:
    assert World().write(None, BAD) == [EVENT]
    assert World().write({}, GOOD) == []


def test_condition_that_was_bad_before_the_start_is_not_recorded() -> None:
    changed = parent(
        condition("Accepted", "False", "NoMatchingParent", "x"), BAD["parents"][0]["conditions"][1]
    )
    assert World().write(BAD, changed) == [("NoMatchingParent", "at web: Accepted is False: x")]


def test_partly_invalid_is_bad_if_true_and_other_types_are_not_recorded() -> None:
    after = parent(
        condition("PartiallyInvalid", "True", "UnsupportedValue", "rules[0]"),
        condition("SupportedVersion", "False"),
        condition("Accepted", "Unknown"),
    )
    assert World().write(GOOD, after) == [
        ("UnsupportedValue", "at web: PartiallyInvalid is True: rules[0]")
    ]


def test_conflict_of_listeners_is_recorded() -> None:
    def gateway(status: str, reason: str) -> Object:
        conflicted = condition("Conflicted", status, reason, "host a.example has listener b")
        return {"listeners": [{"name": "a", "conditions": [conflicted]}]}

    conflict = gateway("True", "HostnameConflict")
    assert World().write(gateway("False", "NoConflicts"), conflict) == [
        (
            "HostnameConflict",
            "listener a: Conflicted is True: host a.example has listener b",
        )
    ]


def test_listener_is_recorded_only_for_a_problem_of_its_own() -> None:
    def gateway(whole: str, listener: str) -> Object:
        return {
            "conditions": [condition("Programmed", whole, "Invalid", "all")],
            "listeners": [
                {"name": "a", "conditions": [condition("Programmed", listener, "Invalid", "one")]}
            ],
        }

    good = gateway("True", "True")
    assert World().write(good, gateway("False", "False")) == [
        ("Invalid", "Programmed is False: all")
    ]
    assert World().write(good, gateway("True", "False")) == [
        ("Invalid", "listener a: Programmed is False: one")
    ]


@pytest.mark.parametrize(
    ("status", "age", "count"),
    [("True", 0, 0), ("True", START_SECONDS + 1, 1), ("Unknown", START_SECONDS + 1, 0)],
)
def test_gateway_that_waits_is_recorded_only_if_it_was_programmed(
    status: str, age: float, count: int
) -> None:
    world = World()
    world.write(GOOD, GOOD)
    world.now += age
    before = {"conditions": [condition("Programmed", status)]}
    after = {"conditions": [condition("Programmed", "False", "Pending", "waiting")]}
    assert len(world.write(before, after)) == count


def test_cause_after_waiting_is_recorded_once() -> None:
    """A new listener waits for the data plane before its port turns out to be in use."""
    world = World()
    listener = {"name": "b", "conditions": [condition("Programmed", "False", "Pending", "waits")]}
    waiting = {"listeners": [listener]}
    cause = condition("Programmed", "False", "Invalid", "cannot bind")
    refused = {"listeners": [{"name": "b", "conditions": [cause]}]}
    world.now += 2 * START_SECONDS
    assert world.write({}, waiting) == []
    event = ("Invalid", "listener b: Programmed is False: cannot bind")
    assert world.write(waiting, refused) == [event]
    assert world.write(refused, waiting) == []


@pytest.mark.parametrize("gateway", ["Pending", "Invalid"])
def test_problem_of_a_listener_is_recorded_although_its_gateway_is_bad_meanwhile(
    gateway: str,
) -> None:
    """A data plane that has just connected again rejects a listener before it confirms the rest."""

    def status(whole: Object, listener: Object) -> Object:
        return {"conditions": [whole], "listeners": [{"name": "b", "conditions": [listener]}]}

    waits = condition("Programmed", "False", gateway, "waits")
    taken = condition("Programmed", "False", "Invalid", "cannot bind")
    programmed = condition("Programmed", "True")
    statuses = [
        status(programmed, programmed),
        status(waits, waits),
        status(waits, taken),
        status(programmed, taken),
        status(programmed, programmed),
    ]
    world = World()
    events = [
        event
        for before, after in itertools.pairwise(statuses)
        for event in world.write(before, after)
    ]
    assert events.count(("Invalid", "listener b: Programmed is False: cannot bind")) == 1
