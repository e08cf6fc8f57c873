"""The Programmed condition of a Gateway as a function of its data plane's reports."""

from __future__ import annotations

from typing import Any

import pytest

from gatehouse.compiler.frontends.gateway_api import ProgrammedInput
from gatehouse.controller.programmed_condition import (
    ProgrammedState,
    ProvisioningError,
    evaluate,
    is_settled,
)
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport

CONFIRMED = ProgrammedState(ProgrammedInput(programmed=True), generation=1)


def report(**instance: Any) -> DataPlaneReport:
    instances = (InstanceReport("pod", **instance),) if instance else ()
    return DataPlaneReport("ns/gw", desired="v2", instances=instances)


def test_nobody_connected_is_pending_with_the_reason_known() -> None:
    alone = evaluate(None, report(), 1, served=False)
    assert alone.state.message == "waiting for the data plane to connect"
    trouble = "cannot create Deployment ns/gw: forbidden"
    assert evaluate(
        None, report(), 1, ProvisioningError(trouble), served=False
    ).state == ProgrammedInput(programmed=False, message=trouble)


def test_confirmation_is_remembered_with_its_generation() -> None:
    standing = evaluate(None, report(desired="v2", confirmed="v2"), 7, served=True)
    assert (standing.state.programmed, standing.generation) == (True, 7)


def test_an_instance_that_has_not_confirmed_does_not_make_it_blink() -> None:
    assert evaluate(CONFIRMED, report(desired="v2", confirmed="v1"), 1, served=False) is CONFIRMED


def test_an_instance_whose_proxy_serves_nothing_ends_it_and_is_named() -> None:
    dead = report(desired="v2", unhealthy="NGINX is not healthy: PID: 18 is not running")
    standing = evaluate(CONFIRMED, dead, 1, served=False)
    assert standing.state == ProgrammedInput(
        programmed=False, message="pod: NGINX is not healthy: PID: 18 is not running"
    )
    assert is_settled(dead)
    served = evaluate(standing, report(desired="v2", confirmed="v2"), 1, served=True)
    assert served == CONFIRMED


def test_trouble_is_said_of_what_is_still_true_and_of_what_is_not_true_yet() -> None:
    confirmed = report(desired="v2", confirmed="v2")
    held = evaluate(
        CONFIRMED, confirmed, 1, ProvisioningError("Service ns/gw: no answer"), served=True
    )
    assert held.state == ProgrammedInput(programmed=True, message="Service ns/gw: no answer")
    newer = evaluate(
        CONFIRMED, confirmed, 2, ProvisioningError("Service ns/gw: quota"), served=True
    )
    assert newer == ProgrammedState(
        ProgrammedInput(programmed=False, message="Service ns/gw: quota"), 1
    )
    mended = evaluate(newer, confirmed, 2, served=True)
    assert mended == ProgrammedState(ProgrammedInput(programmed=True), 2)


def test_a_quota_is_a_reason_of_its_own() -> None:
    refused = ProvisioningError("Service ns/gw: exceeded quota", quota_exceeded=True)
    nobody = evaluate(None, report(), 1, refused, served=False)
    assert nobody.state == ProgrammedInput(
        programmed=False, reason="NoResources", message=refused.message
    )
    confirmed = report(desired="v2", confirmed="v2")
    assert evaluate(CONFIRMED, confirmed, 2, refused, served=True).state.reason == "NoResources"
    assert evaluate(CONFIRMED, confirmed, 1, refused, served=True).state.programmed


def test_fewer_pods_than_asked_for_serve_what_is_newest() -> None:
    fewer = ProvisioningError(
        "Deployment ns/gw: exceeded quota", quota_exceeded=True, degraded=True
    )
    confirmed = report(desired="v2", confirmed="v2")
    held = evaluate(CONFIRMED, confirmed, 2, fewer, served=True)
    assert held == ProgrammedState(ProgrammedInput(programmed=True, message=fewer.message), 2)
    none = evaluate(None, report(), 1, fewer, served=False)
    assert (none.state.programmed, none.state.reason) == (False, "NoResources")


def test_what_is_on_its_way_after_the_gateway_does_not_keep_it_waiting() -> None:
    assert evaluate(None, report(desired="v2", confirmed="v1"), 1, served=True).state.programmed


def test_a_newer_gateway_is_pending_until_confirmed() -> None:
    pending = evaluate(CONFIRMED, report(desired="v2", confirmed="v1"), 2, served=False)
    assert (pending.state.programmed, pending.state.reason) == (False, "Pending")
    assert evaluate(pending, report(desired="v2", confirmed="v2"), 2, served=True).state.programmed


def test_a_refusal_is_invalid_in_the_proxys_own_words() -> None:
    standing = evaluate(
        CONFIRMED, report(desired="v2", confirmed="v1", error="[emerg] no"), 1, served=False
    )
    assert standing.state == ProgrammedInput(
        programmed=False, reason="Invalid", message="pod: [emerg] no"
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
def test_settled_means_that_nothing_is_on_its_way(instance: dict[str, str], expected: bool) -> None:
    assert is_settled(report(**instance)) is expected
