"""Statuses of an earlier controller: what a new one leaves out, and what it does not suspect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.new_controller import FILTER, NewController, match
from fakes.quarantine_loop import GATEWAY
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import http
from gatehouse.controller.programmed_condition import Incomplete
from gatehouse.controller.stored_verdicts import StatusHistory, StoredRejection, StoredVerdicts
from gatehouse.incremental.query import Key

GOLDEN = Path(__file__).parents[1] / "golden"
ROUTE: Key = ("HTTPRoute", "ns", "r")
REASON = 'rejected by nginx/1.31.3: nginx: [emerg] unknown directive "a; b"'


def entry(message: str, generation: int = 2, controller: str = gateway_api.NGINX) -> dict[str, Any]:
    condition = {"type": "Accepted", "message": message, "observedGeneration": generation}
    return {"controllerName": controller, "conditions": [condition]}


def route(*entries: dict[str, Any], **reference: str) -> dict[str, Any]:
    parents = [{**item, "parentRef": {"name": "gw", **reference}} for item in entries]
    return {"metadata": {"generation": 2}, "status": {"parents": parents}}


def verdicts(key: Key, raw: dict[str, Any]) -> StoredVerdicts:
    result = StoredVerdicts()
    result.record(key, raw)
    return result


def rejections(key: Key, raw: dict[str, Any]) -> list[StoredRejection]:
    return [rejection for _, rejection in verdicts(key, raw).rejections(GATEWAY)]


@pytest.mark.parametrize(("status", "generation"), [("True", 4), ("False", 0)])
def test_confirmed_generation_of_a_gateway_is_read_from_its_status(
    status: str, generation: int
) -> None:
    message = Incomplete("left out").message("2026-01-01T00:00:00Z")
    programmed = {"type": "Programmed", "status": status, "observedGeneration": 4}
    raw = {"status": {"conditions": [{**programmed, "message": message}]}}
    state = verdicts(GATEWAY, raw).programmed_state(GATEWAY)
    assert not state.state.programmed, "no instance is known yet"
    assert (state.generation, state.incomplete_since) == (generation, "2026-01-01T00:00:00Z")
    assert verdicts(GATEWAY, {}).programmed_state(GATEWAY).generation == 0


def test_rejected_rules_of_a_route_are_read_from_its_status() -> None:
    message = f"Dropped Rule: rules[1]: {REASON}; Dropped Rule: rules[3]: {REASON}"
    assert rejections(ROUTE, route(entry(message))) == [
        StoredRejection(GATEWAY, "rules[1]", REASON),
        StoredRejection(GATEWAY, "rules[3]", REASON),
    ]
    assert rejections(ROUTE, route(entry(f"rules[0]: {REASON}"), namespace="ns")) == [
        StoredRejection(GATEWAY, "rules[0]", REASON)
    ]


def test_rejection_of_a_match_differs_from_that_of_what_a_rule_does() -> None:
    message = f"Dropped Rule: rules[1]: match {REASON}; Dropped Rule: rules[1]: {REASON}"
    assert rejections(ROUTE, route(entry(message))) == [
        StoredRejection(GATEWAY, "rules[1]", REASON, in_match=True),
        StoredRejection(GATEWAY, "rules[1]", REASON),
    ]


def test_rejected_filter_counts_for_the_gateway_that_its_status_names() -> None:
    raw = {
        "metadata": {"generation": 2},
        "status": {"controllers": [entry(f"not served by Gateway ns/gw: {REASON}")]},
    }
    assert rejections(FILTER, raw) == [StoredRejection(GATEWAY, "", REASON)]
    assert verdicts(FILTER, raw).rejections(("Gateway", "ns", "other")) == []


@pytest.mark.parametrize(
    "raw",
    [
        route(entry(REASON, generation=1)),
        route(entry(REASON, controller="other.example/controller")),
        route(entry(f"rules[1].filters[0]: SnippetsFilter ns/f: {REASON}")),
        route(entry(f"rules[0]: {REASON}"), name="other"),
        {"metadata": {"generation": 2}},
    ],
    ids=["older generation", "other controller", "because of a filter", "other Gateway", "none"],
)
def test_other_conditions_are_no_rejections(raw: dict[str, Any]) -> None:
    assert rejections(ROUTE, raw) == []


@pytest.mark.parametrize(
    "case", sorted(path.parent.name for path in GOLDEN.glob("*/rejected.yaml"))
)
def test_rejections_are_read_from_the_statuses_that_report_them(case: str) -> None:
    """The statuses are those that the controller writes. Ports and credentials are named again."""
    statuses = yaml.safe_load((GOLDEN / case / "status.yaml").read_text(encoding="utf-8"))
    result = StoredVerdicts()
    for title, status in statuses.items():
        kind, name = title.split(" ")
        for field in ("parents", "ancestors", "controllers"):
            for item in status.get(field, ()):
                item.setdefault("controllerName", gateway_api.NGINX)
        result.record((kind, "ns", name), {"metadata": {}, "status": status})
    expected = {
        (item["kind"], item["name"], item.get("part", "").partition(".")[0], item["message"])
        for item in yaml.safe_load((GOLDEN / case / "rejected.yaml").read_text(encoding="utf-8"))
        if "port" not in item and not item.get("credential")
    }
    # The policy that was rejected later made this route different.
    expected -= {("HTTPRoute", "whole", "rules[0]", "bad settings")}
    assert {
        (key[0], key[2], rejection.part, rejection.reason.removeprefix("rejected by proxy/1: "))
        for key, rejection in result.rejections(GATEWAY)
    } == expected


def test_history_of_an_object_is_read_from_its_first_status() -> None:
    accepted, outdated = route(entry("accepted")), route(entry("accepted", generation=1))
    rejected = route(entry(f"rules[0]: {REASON}"))
    repaired = route(entry(f"rules[0]: {REASON}", generation=1))
    assert verdicts(ROUTE, accepted).history(ROUTE) is StatusHistory.SERVED
    for raw, history in (
        (route(), StatusHistory.NEW),
        (rejected, StatusHistory.REJECTED),
        (repaired, StatusHistory.REJECTED),
        (outdated, StatusHistory.CHANGED),
    ):
        result = verdicts(ROUTE, raw)
        assert result.history(ROUTE) is history
        result.record(ROUTE, accepted)
        assert result.history(ROUTE) is history, "this controller may have written the status"
        result.record(ROUTE, None)
        assert result.history(ROUTE) is StatusHistory.SERVED


def test_new_controller_publishes_no_version_with_what_was_rejected_before() -> None:
    controller = NewController(match("r"), match("r", 1), match("good"), snippet="bad")
    controller.bad = {"r/1/0"}
    stored = [
        (ROUTE, StoredRejection(GATEWAY, "rules[1]", REASON)),
        (FILTER, StoredRejection(GATEWAY, "", REASON)),
        (("HTTPRoute", "ns", "gone"), StoredRejection(GATEWAY, "rules[0]", REASON)),
    ]
    assert controller.quarantine.seed(controller.compile(), stored)
    assert controller.settle()
    assert controller.published == [{"r/0/0", "good/0/0"}]
    assert {item.reason for item in controller.quarantine.findings} == {REASON}
    assert [str(item) for item in controller.quarantine.left_out] == [
        "HTTPRoute ns/r: spec.rules[1].matches[0]",
        "SnippetsFilter ns/f",
    ]


@pytest.mark.parametrize("names", [{"r/0/0"}, {"r/0/0", "innocent/0/0"}])
def test_new_controller_does_not_match_what_an_earlier_one_did_not_match(names: set[str]) -> None:
    """Of two matches that are rejected together, it leaves out the same one."""
    earlier, controller = [NewController(match("innocent"), match("good")) for _ in range(2)]
    assert earlier.settle()
    for one in (earlier, controller):
        one.routes.append(match("r"))
        one.bad_matches = (names,)
    assert earlier.settle()
    (finding,) = earlier.quarantine.findings
    stored = rejections(ROUTE, route(entry(f"rules[0]: {finding.reason}")))
    assert controller.quarantine.seed(controller.compile(), [(ROUTE, one) for one in stored])
    assert controller.settle()
    assert controller.published == [{"innocent/0/0", "good/0/0"}]
    assert controller.quarantine.findings == earlier.quarantine.findings


@pytest.mark.parametrize(
    ("matches", "dropped"), [(1, [True, False]), (2, [True]), (2, [True, False])]
)
def test_rule_fails_if_it_is_not_known_that_all_of_its_matches_were_dropped(
    matches: int, dropped: list[bool]
) -> None:
    """An answer of 500 is safer than that of a less specific route."""
    controller = NewController(*(match("r", 0, number) for number in range(matches)))
    stored = [
        (ROUTE, StoredRejection(GATEWAY, "rules[0]", REASON, in_match=value)) for value in dropped
    ]
    assert controller.quarantine.seed(controller.compile(), stored)
    (host,) = controller.compile().listeners[0].virtual_hosts
    assert [item.action for item in host.routes] == [http.Respond(500)] * matches


def test_new_controller_finds_the_match_of_a_rejected_rule() -> None:
    """A status names the rule only, so that all its matches fail until a version is confirmed."""
    controller = NewController(match("r"), match("r", 0, 1), match("good"))
    controller.bad = {"r/0/1"}
    stored = [(ROUTE, StoredRejection(GATEWAY, "rules[0]", REASON))]
    assert controller.quarantine.seed(controller.compile(), stored)
    assert controller.settle()
    assert controller.published[0] == {"good/0/0"}
    assert controller.confirmed[-1] == {"r/0/0", "good/0/0"}


def test_object_that_another_version_of_the_proxy_rejected_is_tried_again() -> None:
    controller = NewController(match("r"), match("good"))
    reason = "rejected by nginx/1.22.1: bad"
    stored = [(ROUTE, StoredRejection(GATEWAY, "rules[0]", reason))]
    assert controller.quarantine.seed(controller.compile(), stored)
    assert controller.settle()
    assert controller.published == [{"good/0/0"}, {"r/0/0", "good/0/0"}]
    assert controller.quarantine.left_out == ()
