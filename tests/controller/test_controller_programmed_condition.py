"""The Programmed condition of a Gateway as a function of its data plane's reports."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gatehouse.compiler.frontends.gateway_api import ProgrammedInput, Reason
from gatehouse.controller.programmed_condition import (
    Incomplete,
    ProgrammedState,
    ProvisioningError,
    evaluate_programmed,
    is_settled,
)
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport, Rejection

CONFIRMED = ProgrammedState(ProgrammedInput(programmed=True), generation=1)


def report(**instance: Any) -> DataPlaneReport:
    instances = (InstanceReport("pod", **instance),) if instance else ()
    return DataPlaneReport("ns/gw", desired="v2", instances=instances)


def test_programmed_is_pending_without_connected_instances() -> None:
    alone = evaluate_programmed(None, report(), 1, served=False)
    assert alone.state.message == "waiting for the data plane to connect"
    trouble = "cannot create Deployment ns/gw: forbidden"
    assert evaluate_programmed(
        None, report(), 1, ProvisioningError(trouble), served=False
    ).state == ProgrammedInput(programmed=False, message=trouble)


def test_programmed_stores_confirmed_generation() -> None:
    standing = evaluate_programmed(None, report(desired="v2", confirmed="v2"), 7, served=True)
    assert (standing.state.programmed, standing.generation) == (True, 7)


def test_programmed_stays_while_new_instance_has_not_confirmed() -> None:
    assert (
        evaluate_programmed(CONFIRMED, report(desired="v2", confirmed="v1"), 1, served=False)
        == CONFIRMED
    )


def test_programmed_is_false_when_proxy_of_an_instance_is_down() -> None:
    dead = report(desired="v2", unhealthy="NGINX is not healthy: PID: 18 is not running")
    standing = evaluate_programmed(CONFIRMED, dead, 1, served=False)
    assert standing.state == ProgrammedInput(
        programmed=False, message="pod: NGINX is not healthy: PID: 18 is not running"
    )
    assert is_settled(dead)
    served = evaluate_programmed(standing, report(desired="v2", confirmed="v2"), 1, served=True)
    assert served == CONFIRMED


def test_programmed_message_has_provisioning_error() -> None:
    confirmed = report(desired="v2", confirmed="v2")
    held = evaluate_programmed(
        CONFIRMED, confirmed, 1, ProvisioningError("Service ns/gw: no answer"), served=True
    )
    assert held.state == ProgrammedInput(programmed=True, message="Service ns/gw: no answer")
    newer = evaluate_programmed(
        CONFIRMED, confirmed, 2, ProvisioningError("Service ns/gw: quota"), served=True
    )
    assert newer == ProgrammedState(
        ProgrammedInput(programmed=False, message="Service ns/gw: quota"), 1
    )
    mended = evaluate_programmed(newer, confirmed, 2, served=True)
    assert mended == ProgrammedState(ProgrammedInput(programmed=True), 2)


def test_programmed_reason_is_no_resources_when_quota_is_exceeded() -> None:
    refused = ProvisioningError("Service ns/gw: exceeded quota", quota_exceeded=True)
    nobody = evaluate_programmed(None, report(), 1, refused, served=False)
    assert nobody.state == ProgrammedInput(
        programmed=False, reason=Reason.NO_RESOURCES, message=refused.message
    )
    confirmed = report(desired="v2", confirmed="v2")
    assert (
        evaluate_programmed(CONFIRMED, confirmed, 2, refused, served=True).state.reason
        == Reason.NO_RESOURCES
    )
    assert evaluate_programmed(CONFIRMED, confirmed, 1, refused, served=True).state.programmed


def test_programmed_is_true_when_fewer_pods_serve_newest_generation() -> None:
    fewer = ProvisioningError(
        "Deployment ns/gw: exceeded quota", quota_exceeded=True, degraded=True
    )
    confirmed = report(desired="v2", confirmed="v2")
    held = evaluate_programmed(CONFIRMED, confirmed, 2, fewer, served=True)
    assert held == ProgrammedState(ProgrammedInput(programmed=True, message=fewer.message), 2)
    none = evaluate_programmed(None, report(), 1, fewer, served=False)
    assert (none.state.programmed, none.state.reason) == (False, Reason.NO_RESOURCES)


def test_programmed_ignores_later_publications() -> None:
    assert evaluate_programmed(
        None, report(desired="v2", confirmed="v1"), 1, served=True
    ).state.programmed


def test_programmed_is_pending_until_newer_generation_is_confirmed() -> None:
    pending = evaluate_programmed(CONFIRMED, report(desired="v2", confirmed="v1"), 2, served=False)
    assert (pending.state.programmed, pending.state.reason) == (False, Reason.PENDING)
    assert evaluate_programmed(
        pending, report(desired="v2", confirmed="v2"), 2, served=True
    ).state.programmed


def test_programmed_is_invalid_with_message_of_proxy() -> None:
    standing = evaluate_programmed(
        CONFIRMED, report(desired="v2", confirmed="v1", error="[emerg] no"), 1, served=False
    )
    assert standing.state == ProgrammedInput(
        programmed=False, reason=Reason.NOT_PROGRAMMED, message="pod: [emerg] no"
    )


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        ({}, True),
        ({"desired": "v2", "confirmed": "v2"}, True),
        ({"desired": "v2", "confirmed": "v1", "error": "no"}, True),
        ({"desired": "v2", "confirmed": "v1"}, False),
        ({"desired": "v1", "confirmed": "v1"}, False),
    ],
)
def test_is_settled_when_no_confirmation_is_pending(
    instance: dict[str, str], expected: bool
) -> None:
    assert is_settled(report(**instance)) is expected


def test_programmed_message_keeps_time_since_when_objects_are_missing() -> None:
    confirmed = report(desired="v2", confirmed="v2")
    searching = Incomplete(held_back=2, now="2026-01-01T00:00:00Z")
    first = evaluate_programmed(CONFIRMED, confirmed, 1, served=True, incomplete=searching)
    assert first.state.programmed
    waiting = "2 objects wait for the search for the cause of a rejection"
    assert first.state.left_out == f"since 2026-01-01T00:00:00Z: {waiting}"
    later = Incomplete("1 object left out: HTTPRoute a/b", 0, "2026-01-01T00:00:09Z")
    second = evaluate_programmed(first, confirmed, 1, served=True, incomplete=later)
    assert second.state.left_out == ("since 2026-01-01T00:00:00Z: 1 object left out: HTTPRoute a/b")
    whole = Incomplete(now="2026-01-01T00:01:00Z")
    third = evaluate_programmed(second, confirmed, 1, served=True, incomplete=whole)
    assert third == CONFIRMED
    again = msgspec.structs.replace(later, now="2026-01-01T00:02:00Z")
    fourth = evaluate_programmed(third, confirmed, 1, served=True, incomplete=again)
    assert fourth.state.left_out.startswith("since 2026-01-01T00:02:00Z: ")


def test_programmed_names_missing_objects_while_new_instance_has_not_confirmed() -> None:
    behind = report(desired="v2", confirmed="v1")
    missing = Incomplete(held_back=1, now="2026-01-01T00:00:00Z")
    state = evaluate_programmed(CONFIRMED, behind, 1, served=False, incomplete=missing).state
    assert state.programmed
    assert "1 object waits for the search" in state.left_out


def test_programmed_names_missing_objects_while_it_is_false() -> None:
    rejecting = report(desired="v2", confirmed="v1", error="[emerg] no")
    missing = Incomplete(held_back=1, now="2026-01-01T00:00:00Z")
    state = evaluate_programmed(CONFIRMED, rejecting, 1, served=False, incomplete=missing).state
    assert not state.programmed
    assert state.left_out.startswith("since 2026-01-01T00:00:00Z: 1 object waits")


def test_time_of_missing_objects_ends_with_the_confirmation_of_a_complete_version() -> None:
    """A new controller may find what is left out only by a search."""
    left_out = Incomplete("1 object left out: HTTPRoute a/b", now="2026-01-01T00:00:00Z")
    confirmed, behind = (report(desired="v2", confirmed=version) for version in ("v2", "v1"))
    state = evaluate_programmed(CONFIRMED, confirmed, 1, served=True, incomplete=left_out)
    state = evaluate_programmed(state, behind, 1, served=True)
    assert state.state.left_out == ""
    again = msgspec.structs.replace(left_out, now="2026-01-01T00:01:00Z")
    state = evaluate_programmed(state, confirmed, 1, served=True, incomplete=again)
    assert state.state.left_out.startswith("since 2026-01-01T00:00:00Z: ")
    assert evaluate_programmed(state, confirmed, 1, served=True) == CONFIRMED


@pytest.mark.parametrize("transient", [True, False])
def test_time_of_missing_objects_stays_while_content_is_rejected(transient: bool) -> None:
    """Envoy confirms a version of which it rejects a resource. A busy port is no such content."""
    left_out = Incomplete("1 object left out: HTTPRoute a/b", now="2026-01-01T00:00:00Z")
    confirmed = report(desired="v2", confirmed="v2")
    state = evaluate_programmed(CONFIRMED, confirmed, 1, served=True, incomplete=left_out)
    rejection = Rejection((), "missing )", transient=transient)
    rejecting = report(desired="v2", confirmed="v2", rejected=(rejection,))
    since = evaluate_programmed(state, rejecting, 1, served=True).incomplete_since
    assert since == ("" if transient else "2026-01-01T00:00:00Z")


def test_programmed_stays_when_a_new_controller_meets_instances_that_serve() -> None:
    """It was Programmed before. The search for a cause may take longer than the instances."""
    stored = ProgrammedState(ProgrammedInput(programmed=False), generation=1)
    alone = evaluate_programmed(stored, report(), 1, served=False)
    assert not alone.state.programmed
    serving = report(desired="v2", confirmed="", serving=True)
    assert evaluate_programmed(alone, serving, 1, served=False) == CONFIRMED
    assert not evaluate_programmed(alone, serving, 2, served=False).state.programmed
    new = report(desired="v2", confirmed="")
    assert not evaluate_programmed(alone, new, 1, served=False).state.programmed


def test_time_in_a_message_is_read_again() -> None:
    message = f"waiting; {Incomplete('left out').message('2026-01-01T00:00:00Z')}"
    assert Incomplete.since(message) == "2026-01-01T00:00:00Z"
    assert Incomplete.since("since yesterday: nothing") == ""
