"""Statuses of an earlier controller: what a new one leaves out, and what it does not suspect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.proxy_settings import NginxSnippet
from gatehouse.controller.held_back import held_back_key, without_held_back
from gatehouse.controller.programmed_condition import Incomplete
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.quarantines import process_report
from gatehouse.controller.stored_verdicts import StatusHistory, StoredRejection, StoredVerdicts
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Key

GOLDEN = Path(__file__).parents[1] / "golden"
GATEWAY: Key = ("Gateway", "ns", "gw")
ROUTE: Key = ("HTTPRoute", "ns", "r")
FILTER: Key = ("SnippetsFilter", "ns", "f")
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


class World:
    """A new controller with an instance that serves already, and rejects some routes."""

    def __init__(self, *routes: http.Route, snippet: str = "") -> None:
        self.routes = list(routes)
        self.snippet = snippet
        self.histories: dict[Key, StatusHistory] = {}
        self.published: list[set[str]] = []
        self.bad: set[str] = set()
        self.bad_matches: tuple[set[str], ...] = ()
        """Names of routes whose matches are rejected together, whatever the routes do."""
        self.confirmed: list[set[str]] = []
        self.quarantine = Quarantine(
            GATEWAY,
            lambda *_: (),
            lambda _: "spec",
            lambda _: True,
            history=lambda key: self.histories.get(key, StatusHistory.SERVED),
        )
        self.serving, self.trials = True, False
        self.bad_in_service: set[str] = set()
        """Routes that the instance accepts in a trial, and rejects when it serves them."""

    def compile(self) -> ir.GatewayConfiguration:
        inputs, routes = self.quarantine.inputs, []
        for item in self.routes:
            replacement = inputs.get(gateway_api.replacement_key(GATEWAY, item.origin))
            replaced = dict(replacement.routes) if replacement is not None else {}
            served = replaced.get(item, item)
            routes += [served] if served is not None else []
        hosts = (http.VirtualHost("", tuple(routes)),)
        rejected = gateway_api.rejected_object_key(GATEWAY, FILTER) in inputs
        snippets = (NginxSnippet(object_of(FILTER), "http", self.snippet),)
        return ir.GatewayConfiguration(
            "ns/gw",
            listeners=(ir.Listener(80, "HTTP", hosts),),
            snippets=snippets if self.snippet and not rejected else (),
        )

    def report(self, version: str, *, rejected: bool) -> DataPlaneReport:
        instance = InstanceReport(
            "i",
            desired=version,
            confirmed="" if rejected else version,
            proxy="nginx/1.31.3",
            rejected_version=version if rejected else "",
            rejection="bad" if rejected else "",
            serving=self.serving,
            takes_trials=self.trials,
        )
        return DataPlaneReport("ns/gw", version, (instance,))

    def edited(self, *names: str, history: StatusHistory = StatusHistory.CHANGED) -> None:
        """Let routes have a history."""
        self.histories |= {("HTTPRoute", "ns", name): history for name in names}

    def settle(self) -> bool:
        """Publish until nothing changes. Return whether the last version is accepted."""
        for _ in range(100):
            compiled = self.compile()
            held = self.quarantine.inputs.get(held_back_key(GATEWAY))
            gateway = compiled if held is None else without_held_back(held, compiled)
            (host,) = gateway.listeners[0].virtual_hosts or (http.VirtualHost("", ()),)
            served = {
                item.name for item in host.routes if not isinstance(item.action, http.Respond)
            }
            if self.published[-1:] != [served]:
                self.published.append(served)
            if self.quarantine.published(repr(gateway), gateway, compiled):
                continue
            bad = bool(self.bad & served) or "bad" in repr(gateway.snippets)
            trial = held is not None and held.trial
            bad |= not trial and bool(self.bad_in_service & served)
            bad |= any(names <= {item.name for item in host.routes} for names in self.bad_matches)
            if not bad and not trial:
                self.confirmed.append(served)
            if not process_report(self.quarantine, self.report(repr(gateway), rejected=bad)):
                return not bad
        raise AssertionError("the quarantine does not settle")


def match(name: str, rule: int = 0, number: int = 0) -> http.Route:
    origin = Origin("HTTPRoute", "ns", name, f"rules[{rule}].matches[{number}]")
    return http.Route(f"{name}/{rule}/{number}", http.Match(), http.Redirect(), origin=origin)


def test_new_controller_publishes_no_version_with_what_was_rejected_before() -> None:
    world = World(match("r"), match("r", 1), match("good"), snippet="bad")
    world.bad = {"r/1/0"}
    stored = [
        (ROUTE, StoredRejection(GATEWAY, "rules[1]", REASON)),
        (FILTER, StoredRejection(GATEWAY, "", REASON)),
        (("HTTPRoute", "ns", "gone"), StoredRejection(GATEWAY, "rules[0]", REASON)),
    ]
    assert world.quarantine.seed(world.compile(), stored)
    assert world.settle()
    assert world.published == [{"r/0/0", "good/0/0"}]
    assert {item.reason for item in world.quarantine.findings} == {REASON}
    assert [str(item) for item in world.quarantine.left_out] == [
        "HTTPRoute ns/r: spec.rules[1].matches[0]",
        "SnippetsFilter ns/f",
    ]


@pytest.mark.parametrize("names", [{"r/0/0"}, {"r/0/0", "innocent/0/0"}])
def test_new_controller_does_not_match_what_an_earlier_one_did_not_match(names: set[str]) -> None:
    """Of two matches that are rejected together, it leaves out the same one."""
    earlier, world = [World(match("innocent"), match("good")) for _ in range(2)]
    assert earlier.settle()
    for one in (earlier, world):
        one.routes.append(match("r"))
        one.bad_matches = (names,)
    assert earlier.settle()
    (finding,) = earlier.quarantine.findings
    stored = rejections(ROUTE, route(entry(f"rules[0]: {finding.reason}")))
    assert world.quarantine.seed(world.compile(), [(ROUTE, one) for one in stored])
    assert world.settle()
    assert world.published == [{"innocent/0/0", "good/0/0"}]
    assert world.quarantine.findings == earlier.quarantine.findings


@pytest.mark.parametrize(
    ("matches", "dropped"), [(1, [True, False]), (2, [True]), (2, [True, False])]
)
def test_rule_fails_if_it_is_not_known_that_all_of_its_matches_were_dropped(
    matches: int, dropped: list[bool]
) -> None:
    """An answer of 500 is safer than that of a less specific route."""
    world = World(*(match("r", 0, number) for number in range(matches)))
    stored = [
        (ROUTE, StoredRejection(GATEWAY, "rules[0]", REASON, in_match=value)) for value in dropped
    ]
    assert world.quarantine.seed(world.compile(), stored)
    (host,) = world.compile().listeners[0].virtual_hosts
    assert [item.action for item in host.routes] == [http.Respond(500)] * matches


def test_new_controller_finds_the_match_of_a_rejected_rule() -> None:
    """A status names the rule only, so that all its matches fail until a version is confirmed."""
    world = World(match("r"), match("r", 0, 1), match("good"))
    world.bad = {"r/0/1"}
    stored = [(ROUTE, StoredRejection(GATEWAY, "rules[0]", REASON))]
    assert world.quarantine.seed(world.compile(), stored)
    assert world.settle()
    assert world.published[0] == {"good/0/0"}
    assert world.confirmed[-1] == {"r/0/0", "good/0/0"}


def test_object_that_another_version_of_the_proxy_rejected_is_tried_again() -> None:
    world = World(match("r"), match("good"))
    reason = "rejected by nginx/1.22.1: bad"
    stored = [(ROUTE, StoredRejection(GATEWAY, "rules[0]", reason))]
    assert world.quarantine.seed(world.compile(), stored)
    assert world.settle()
    assert world.published == [{"good/0/0"}, {"r/0/0", "good/0/0"}]
    assert world.quarantine.left_out == ()


def test_new_controller_holds_back_only_objects_that_are_not_served() -> None:
    world = World(*(match(f"good-{number}") for number in range(6)), match("r"), match("new"))
    world.bad = {"r/0/0"}
    world.histories = {ROUTE: StatusHistory.NEW, ("HTTPRoute", "ns", "new"): StatusHistory.NEW}
    assert world.settle()
    good = {f"good-{number}/0/0" for number in range(6)}
    assert all(served >= good for served in world.confirmed)
    assert world.confirmed[-1] == {*good, "new/0/0"}


def test_new_controller_leaves_data_planes_unchanged_when_all_objects_are_served() -> None:
    world = World(match("a"), match("r"))
    world.bad = {"r/0/0"}
    assert not world.settle()
    assert world.confirmed == []
    assert world.quarantine.inputs == {}


GOOD = tuple(f"good-{number}" for number in range(6))


def test_good_objects_are_served_after_one_step_beside_an_edited_bad_one() -> None:
    """The error names nothing, and the bad object was served as it was before."""
    world = World(*map(match, (*GOOD, "r", "edited", "also-edited")))
    world.bad = {"r/0/0"}
    world.edited("r", "edited", "also-edited")
    assert world.settle()
    good = {f"{name}/0/0" for name in GOOD}
    assert world.published[1] == good, "the second version has everything that is not suspect"
    assert all(served >= good for served in world.confirmed)
    assert world.confirmed[-1] == {*good, "edited/0/0", "also-edited/0/0"}
    assert {str(item) for item in world.quarantine.left_out} == {
        "HTTPRoute ns/r: spec.rules[0].matches[0]"
    }


def test_object_that_was_rejected_and_edited_is_suspected_before_edited_ones() -> None:
    world = World(*map(match, (*GOOD, "r", "edited")))
    world.bad = {"r/0/0"}
    world.edited("edited")
    world.edited("r", history=StatusHistory.REJECTED)
    assert world.settle()
    others = {*(f"{name}/0/0" for name in GOOD), "edited/0/0"}
    assert all(served >= others for served in world.confirmed)
    assert world.confirmed[-1] == others


def test_search_among_edited_objects_follows_that_among_new_ones() -> None:
    world = World(*map(match, (*GOOD, "r", "edited", "new")))
    world.bad = {"r/0/0"}
    world.edited("new", history=StatusHistory.NEW)
    world.edited("r", "edited")
    assert world.settle()
    good = {f"{name}/0/0" for name in GOOD}
    assert all(served >= good for served in world.confirmed)
    assert world.confirmed[-1] == {*good, "edited/0/0", "new/0/0"}


def test_edited_filter_and_policy_are_found_and_change_no_other_route() -> None:
    world = World(*map(match, GOOD), snippet="bad")
    world.histories[FILTER] = StatusHistory.CHANGED
    assert world.settle()
    assert world.quarantine.left_out == (object_of(FILTER),)
    assert world.confirmed[-1] == {f"{name}/0/0" for name in GOOD}


@pytest.mark.parametrize("history", StatusHistory)
def test_instance_without_a_configuration_gets_the_good_objects(history: StatusHistory) -> None:
    """It serves nothing, so that any object may be suspected."""
    world = World(*map(match, (*GOOD, "r")))
    world.serving, world.bad = False, {"r/0/0"}
    world.edited("r", history=history)
    assert world.settle()
    good = {f"{name}/0/0" for name in GOOD}
    assert world.confirmed[-1] == good
    if history is not StatusHistory.SERVED:
        assert world.confirmed[0] == good, "the first version that it accepts has all of them"


@pytest.mark.parametrize("serving", [True, False])
@pytest.mark.parametrize("history", StatusHistory)
def test_trials_find_a_bad_route_and_only_the_result_is_served(
    history: StatusHistory, serving: bool
) -> None:
    world = World(*map(match, (*GOOD, "r", "also-bad")))
    world.serving, world.trials, world.bad = serving, True, {"r/0/0", "also-bad/0/0"}
    world.edited("r", history=history)
    assert world.settle()
    assert world.confirmed[0] == world.confirmed[-1] == {f"{name}/0/0" for name in GOOD}


def test_trials_find_a_bad_policy_that_was_served_as_it_is() -> None:
    """Routes are not left out because of it."""
    world = World(*map(match, GOOD), snippet="bad")
    world.trials = True
    assert world.settle()
    assert world.quarantine.left_out == (object_of(FILTER),)
    assert world.confirmed[0] == {f"{name}/0/0" for name in GOOD}


def test_trials_find_a_bad_route_beside_a_bad_policy() -> None:
    world = World(*map(match, (*GOOD, "r")), snippet="bad")
    world.trials, world.bad = True, {"r/0/0"}
    assert world.settle()
    assert {item.name for item in world.quarantine.left_out} == {"r", "f"}
    assert world.confirmed[0] == {f"{name}/0/0" for name in GOOD}


def test_edited_route_that_is_rejected_only_in_service_is_found_without_trials() -> None:
    world = World(*map(match, (*GOOD, "r")))
    world.trials, world.bad_in_service = True, {"r/0/0"}
    world.edited("r")
    assert world.settle()
    assert world.confirmed[-1] == {f"{name}/0/0" for name in GOOD}


def test_search_waits_for_no_instance_that_takes_no_trials() -> None:
    """It serves, and cannot test a configuration without serving it."""
    world = World(*map(match, (*GOOD, "r")))
    world.serving, world.trials, world.bad = False, True, {"r/0/0"}
    alone = world.report

    def with_serving_one(version: str, *, rejected: bool) -> DataPlaneReport:
        report = alone(version, rejected=rejected)
        older = InstanceReport("old", confirmed="", proxy="nginx/1.31.3", serving=True)
        if not world.quarantine.trial and not rejected:
            older = msgspec.structs.replace(older, confirmed=version)
        return msgspec.structs.replace(report, instances=(*report.instances, older))

    world.report = with_serving_one  # type: ignore[method-assign]
    assert world.settle()
    assert world.confirmed[-1] == {f"{name}/0/0" for name in GOOD}


def test_search_starts_again_with_trials_when_an_instance_takes_them() -> None:
    world = World(*map(match, (*GOOD, "r", "edited")))
    world.bad = {"r/0/0"}
    world.edited("edited")
    compiled = world.compile()
    world.quarantine.published("v1", compiled)
    assert process_report(world.quarantine, world.report("v1", rejected=True))
    assert world.quarantine.searching
    assert not world.quarantine.trial
    world.trials, world.serving = True, False
    assert world.settle()
    good = {*(f"{name}/0/0" for name in GOOD), "edited/0/0"}
    assert all(served == good for served in world.confirmed)


def test_trials_are_few_among_many_routes() -> None:
    """All other changes wait for them."""
    world = World(*(match(f"good-{number}") for number in range(63)), match("r"))
    world.trials, world.bad = True, {"r/0/0"}
    trials: list[set[str]] = []
    compiled = world.compile()
    world.quarantine.published("first", compiled)
    process_report(world.quarantine, world.report("first", rejected=True))
    for _ in range(100):
        held = world.quarantine.inputs.get(held_back_key(GATEWAY))
        if held is None:
            break
        gateway = without_held_back(held, world.compile())
        hosts = gateway.listeners[0].virtual_hosts
        trials.append({item.name for host in hosts for item in host.routes})
        version = f"trial {len(trials)}"
        assert world.quarantine.trial
        world.quarantine.published(version, gateway, compiled)
        rejected = "r/0/0" in trials[-1]
        process_report(world.quarantine, world.report(version, rejected=rejected))
    assert world.quarantine.left_out
    assert len(trials) <= 14
