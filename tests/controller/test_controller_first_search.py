"""Search of a new controller for what is rejected: it knows no good version, only statuses."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.new_controller import FILTER, NewController, match
from fakes.quarantine_loop import GATEWAY
from gatehouse.controller.assumed_good import MAX_FEW, MAX_TOGETHER
from gatehouse.controller.held_back import held_back_key, without_held_back
from gatehouse.controller.quarantines import process_report
from gatehouse.controller.stored_verdicts import StatusHistory, StoredRejection
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Key

REASON = "rejected by nginx/1.31.3: bad"


def test_new_controller_holds_back_only_objects_that_are_not_served() -> None:
    controller = NewController(
        *(match(f"good-{number}") for number in range(6)), match("r"), match("new")
    )
    controller.bad = {"r/0/0"}
    controller.edited("r", "new", history=StatusHistory.NEW)
    assert controller.settle()
    good = {f"good-{number}/0/0" for number in range(6)}
    assert all(served >= good for served in controller.confirmed)
    assert controller.confirmed[-1] == {*good, "new/0/0"}


def test_new_controller_leaves_data_planes_unchanged_when_all_objects_are_served() -> None:
    controller = NewController(match("a"), match("r"))
    controller.bad = {"r/0/0"}
    assert not controller.settle()
    assert controller.confirmed == []
    assert controller.quarantine.inputs == {}


GOOD = tuple(f"good-{number}" for number in range(6))


def test_good_objects_are_served_after_one_step_beside_an_edited_bad_one() -> None:
    """The error names nothing, and the bad object was served as it was before."""
    controller = NewController(*map(match, (*GOOD, "r", "edited", "also-edited")))
    controller.bad = {"r/0/0"}
    controller.edited("r", "edited", "also-edited")
    assert controller.settle()
    good = {f"{name}/0/0" for name in GOOD}
    assert controller.published[1] == good, "the second version has everything that is not suspect"
    assert all(served >= good for served in controller.confirmed)
    assert controller.confirmed[-1] == {*good, "edited/0/0", "also-edited/0/0"}
    assert {str(item) for item in controller.quarantine.left_out} == {
        "HTTPRoute ns/r: spec.rules[0].matches[0]"
    }


def test_object_that_was_rejected_and_edited_is_suspected_before_edited_ones() -> None:
    controller = NewController(*map(match, (*GOOD, "r", "edited")))
    controller.bad = {"r/0/0"}
    controller.edited("edited")
    controller.edited("r", history=StatusHistory.REJECTED)
    assert controller.settle()
    others = {*(f"{name}/0/0" for name in GOOD), "edited/0/0"}
    assert all(served >= others for served in controller.confirmed)
    assert controller.confirmed[-1] == others


SERVED = tuple(f"r{number:02}" for number in range(12))


@given(
    st.sets(st.sampled_from(SERVED[-MAX_FEW:]), min_size=1, max_size=2),
    st.sets(st.sampled_from(SERVED)),
)
def test_one_or_two_causes_among_served_objects_are_found_without_trials(
    bad: set[str], of_match: set[str]
) -> None:
    """Nothing else is taken away from data planes that test a version by serving it."""
    controller = NewController(*map(match, SERVED))
    controller.times = {
        ("HTTPRoute", "ns", name): f"2026-01-{number + 1:02}T00:00:00Z"
        for number, name in enumerate(SERVED)
    }
    controller.bad = {f"{name}/0/0" for name in bad - of_match}
    controller.bad_matches = tuple({f"{name}/0/0"} for name in bad & of_match)
    assert controller.settle()
    assert {item.name for item in controller.quarantine.left_out} == bad
    good = {f"{name}/0/0" for name in SERVED if name not in bad}
    assert all(served == good for served in controller.confirmed)
    assert len(controller.published) <= 2 * (MAX_FEW + math.comb(MAX_FEW, MAX_TOGETHER)) + 8


def test_three_causes_among_served_objects_end_the_search_without_trials() -> None:
    controller = NewController(*map(match, SERVED))
    controller.times = dict.fromkeys((("HTTPRoute", "ns", name) for name in SERVED), "2026")
    controller.bad = {"r09/0/0", "r10/0/0", "r11/0/0"}
    assert not controller.settle()
    assert controller.confirmed == []
    assert controller.quarantine.inputs == {}


@pytest.mark.parametrize("history", [StatusHistory.REJECTED, StatusHistory.CHANGED])
@pytest.mark.parametrize(("trials", "bad", "limit"), [(False, 1, 4), (False, 8, 19), (True, 1, 6)])
def test_edited_route_whose_match_is_rejected_is_found(
    history: StatusHistory, trials: bool, bad: int, limit: int
) -> None:
    """Such a match can give no answer, not even 500."""
    names = [f"b{number}" for number in range(bad)]
    controller = NewController(*map(match, (*GOOD, *names, "edited")))
    controller.trials, controller.bad_matches = trials, tuple({f"{name}/0/0"} for name in names)
    controller.edited("edited")
    controller.edited(*names, history=history)
    assert controller.settle()
    good = {f"{name}/0/0" for name in GOOD}
    assert all(served >= good for served in controller.confirmed)
    assert controller.confirmed[-1] == {*good, "edited/0/0"}
    assert {item.name for item in controller.quarantine.left_out} == set(names)
    assert len(controller.published) <= limit


class Edit(msgspec.Struct, frozen=True):
    """An edit of a route while no controller ran."""

    history: StatusHistory
    rejected: str
    """The part that a proxy rejects now: none (empty), its ``match``, or its ``action``."""
    stored: bool
    """True if its status says that it is rejected, which holds for its present generation."""
    of_match: bool
    """True if this status names the match, if that is what is rejected."""


EDITS = st.builds(
    Edit,
    st.sampled_from([StatusHistory.NEW, StatusHistory.REJECTED, StatusHistory.CHANGED]),
    st.sampled_from(["", "match", "action"]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(EDITS, min_size=1, max_size=12), st.booleans(), st.booleans(), st.booleans())
def test_all_good_objects_are_served_after_any_edits(
    edits: list[Edit], bad_filter: bool, trials: bool, serving: bool
) -> None:
    names = [f"r{number}" for number in range(len(edits))]
    controller = NewController(*map(match, ("good", *names)), snippet="bad" if bad_filter else "")
    controller.trials, controller.serving = trials, serving
    controller.histories[FILTER] = StatusHistory.CHANGED
    stored: list[tuple[Key, StoredRejection]] = []
    for name, edit in zip(names, edits, strict=True):
        controller.edited(name, history=edit.history)
        if edit.rejected and edit.stored and edit.history is StatusHistory.REJECTED:
            in_match = edit.of_match and edit.rejected == "match"
            verdict = StoredRejection(GATEWAY, "rules[0]", REASON, in_match=in_match)
            stored.append((("HTTPRoute", "ns", name), verdict))
    rejected = {
        kind: {
            f"{name}/0/0" for name, edit in zip(names, edits, strict=True) if edit.rejected == kind
        }
        for kind in ("match", "action")
    }
    controller.bad = rejected["action"]
    controller.bad_matches = tuple({name} for name in rejected["match"])
    controller.quarantine.seed(controller.compile(), stored)
    assert controller.settle()
    good = {"good/0/0", *(f"{name}/0/0" for name in names)}
    assert controller.confirmed[-1] == good - rejected["match"] - rejected["action"]


def test_search_among_edited_objects_follows_that_among_new_ones() -> None:
    controller = NewController(*map(match, (*GOOD, "r", "edited", "new")))
    controller.bad = {"r/0/0"}
    controller.edited("new", history=StatusHistory.NEW)
    controller.edited("r", "edited")
    assert controller.settle()
    good = {f"{name}/0/0" for name in GOOD}
    assert all(served >= good for served in controller.confirmed)
    assert controller.confirmed[-1] == {*good, "edited/0/0", "new/0/0"}


def test_edited_filter_and_policy_are_found_and_change_no_other_route() -> None:
    controller = NewController(*map(match, GOOD), snippet="bad")
    controller.histories[FILTER] = StatusHistory.CHANGED
    assert controller.settle()
    assert controller.quarantine.left_out == (object_of(FILTER),)
    assert controller.confirmed[-1] == {f"{name}/0/0" for name in GOOD}


@pytest.mark.parametrize("history", StatusHistory)
def test_instance_without_a_configuration_gets_the_good_objects(history: StatusHistory) -> None:
    """It serves nothing, so that any object may be suspected."""
    controller = NewController(*map(match, (*GOOD, "r")))
    controller.serving, controller.bad = False, {"r/0/0"}
    controller.edited("r", history=history)
    assert controller.settle()
    good = {f"{name}/0/0" for name in GOOD}
    assert controller.confirmed[-1] == good
    if history is not StatusHistory.SERVED:
        assert controller.confirmed[0] == good, "the first version that it accepts has all of them"


@pytest.mark.parametrize("serving", [True, False])
@pytest.mark.parametrize("history", StatusHistory)
def test_trials_find_a_bad_route_and_only_the_result_is_served(
    history: StatusHistory, serving: bool
) -> None:
    controller = NewController(*map(match, (*GOOD, "r", "also-bad")))
    controller.serving, controller.trials, controller.bad = serving, True, {"r/0/0", "also-bad/0/0"}
    controller.edited("r", history=history)
    assert controller.settle()
    assert controller.confirmed[0] == controller.confirmed[-1] == {f"{name}/0/0" for name in GOOD}


def test_trials_find_a_bad_policy_that_was_served_as_it_is() -> None:
    """Routes are not left out because of it."""
    controller = NewController(*map(match, GOOD), snippet="bad")
    controller.trials = True
    assert controller.settle()
    assert controller.quarantine.left_out == (object_of(FILTER),)
    assert controller.confirmed[0] == {f"{name}/0/0" for name in GOOD}


def test_trials_find_a_bad_route_beside_a_bad_policy() -> None:
    controller = NewController(*map(match, (*GOOD, "r")), snippet="bad")
    controller.trials, controller.bad = True, {"r/0/0"}
    assert controller.settle()
    assert {item.name for item in controller.quarantine.left_out} == {"r", "f"}
    assert controller.confirmed[0] == {f"{name}/0/0" for name in GOOD}


def test_edited_route_that_is_rejected_only_in_service_is_found_without_trials() -> None:
    controller = NewController(*map(match, (*GOOD, "r")))
    controller.trials, controller.bad_in_service = True, {"r/0/0"}
    controller.edited("r")
    assert controller.settle()
    assert controller.confirmed[-1] == {f"{name}/0/0" for name in GOOD}


def test_search_waits_for_no_instance_that_takes_no_trials() -> None:
    """It serves, and cannot test a configuration without serving it."""
    controller = NewController(*map(match, (*GOOD, "r")))
    controller.serving, controller.trials, controller.bad = False, True, {"r/0/0"}
    alone = controller.report

    def with_serving_one(version: str, *, rejected: bool) -> DataPlaneReport:
        report = alone(version, rejected=rejected)
        older = InstanceReport("old", confirmed="", proxy="nginx/1.31.3", serving=True)
        if not controller.quarantine.trial and not rejected:
            older = msgspec.structs.replace(older, confirmed=version)
        return msgspec.structs.replace(report, instances=(*report.instances, older))

    controller.report = with_serving_one  # type: ignore[method-assign]
    assert controller.settle()
    assert controller.confirmed[-1] == {f"{name}/0/0" for name in GOOD}


def test_search_starts_again_with_trials_when_an_instance_takes_them() -> None:
    controller = NewController(*map(match, (*GOOD, "r", "edited")))
    controller.bad = {"r/0/0"}
    controller.edited("edited")
    compiled = controller.compile()
    controller.quarantine.published("v1", compiled)
    assert process_report(controller.quarantine, controller.report("v1", rejected=True))
    assert controller.quarantine.searching
    assert not controller.quarantine.trial
    controller.trials, controller.serving = True, False
    assert controller.settle()
    good = {*(f"{name}/0/0" for name in GOOD), "edited/0/0"}
    assert all(served == good for served in controller.confirmed)


def test_trials_are_few_among_many_routes() -> None:
    """All other changes wait for them."""
    controller = NewController(*(match(f"good-{number}") for number in range(63)), match("r"))
    controller.trials, controller.bad = True, {"r/0/0"}
    trials: list[set[str]] = []
    compiled = controller.compile()
    controller.quarantine.published("first", compiled)
    process_report(controller.quarantine, controller.report("first", rejected=True))
    for _ in range(100):
        held = controller.quarantine.inputs.get(held_back_key(GATEWAY))
        if held is None:
            break
        gateway = without_held_back(held, controller.compile())
        hosts = gateway.listeners[0].virtual_hosts
        trials.append({item.name for host in hosts for item in host.routes})
        version = f"trial {len(trials)}"
        assert controller.quarantine.trial
        controller.quarantine.published(version, gateway, compiled)
        rejected = "r/0/0" in trials[-1]
        process_report(controller.quarantine, controller.report(version, rejected=rejected))
    assert controller.quarantine.left_out
    assert len(trials) <= 14
