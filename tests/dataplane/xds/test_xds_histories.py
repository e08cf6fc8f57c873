"""Whatever happens to a relay, and in whatever order: everybody ends with what is published."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.envoy_model import make_resource
from fakes.envoy_worlds import worlds
from fakes.relay_chain import MOVES, assert_consistent, run_steps, run_to_end
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    ROUTES_TYPE_URL,
    ResourceSet,
)

USUAL = st.sampled_from(MOVES)
MISHAPS = st.sampled_from(
    [
        "start_relay",
        "start_envoy",
        "lose_disk",
        "connect_envoy",
        "connect_relay",
        "disconnect_envoy",
        "disconnect_relay",
        "wait",
    ]
)
STEPS = st.one_of(*[USUAL] * 6, worlds(), MISHAPS, st.just("step"))


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=80))
def test_envoy_has_published_resources_after_any_restarts(steps: list[object]) -> None:
    assert_consistent(*run_to_end(steps))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(*[USUAL] * 6, worlds(), st.just("connect_relay")), max_size=80))
def test_routes_never_lead_to_missing_clusters(steps: list[object]) -> None:
    chain = run_steps(steps)
    while chain.relay.node is None:
        chain.envoy_to_relay()
    chain.connect_relay()
    chain.finish()
    assert chain.envoy.faults == []
    assert chain.envoy.waits == 0


def world(text: str) -> ResourceSet:
    """Resources, each written as its kind's first letter, its name and, if it is not good, ``bad``.

    A listener is followed by the clusters that its routes lead to.
    """
    result = []
    for entry in text.split():
        kind, name, *more = entry.split(":")
        if kind == "L":
            result.append(make_resource(LISTENER_TYPE_URL, name, f"routes-{name}|one"))
            result.append(make_resource(ROUTES_TYPE_URL, f"routes-{name}", f"{','.join(more)}|one"))
        else:
            type_url = CLUSTER_TYPE_URL if kind == "C" else ENDPOINTS_TYPE_URL
            result.append(make_resource(type_url, name, more[0] if more else "one"))
    return ResourceSet(result)


HISTORIES = {
    "endpoints go before they were ever told": """
        envoy_to_relay | C:a E:a | connect_relay | server_to_relay | C:a""",
    "what goes while it is told for the first time, on another stream": """
        envoy_to_relay*2 | C:a | connect_relay | step*4 | - | connect_relay""",
    "what goes is asked for no longer before it was answered": """
        step | connect_relay | C:b C:c E:b:bad E:c | server_to_relay | -""",
    "a refusal of what another stream brought": """
        C:c:bad | step | connect_relay | step*5 | connect_relay | C:b""",
    "an Envoy that is there already, and a bad version of what it has": """
        step | connect_relay | C:b C:a | step*4 | C:a:bad L:m | step*3 | start_relay""",
    "what was taken when a bad version was there already": """
        C:c | step | connect_relay | step | relay_to_server | wait*2 | C:c:ugly | step*2 |
        disconnect_relay""",
    "a bad version of what was taken when the stream was lost": """
        C:b | wait | connect_relay | relay_to_server | server_to_relay | relay_hears |
        connect_relay | C:b:bad | envoy_to_relay | relay_to_envoy | step | relay_to_server |
        step*3 | disconnect_envoy""",
    "endpoints that go are not asked for by the next Envoy": """
        step | connect_relay | C:a E:a | step*14 | start_envoy | -""",
    "endpoints on the disk that nobody asks for": """
        C:c E:c | step | connect_relay | step*4 | relay_hears | step*3 | relay_to_server |
        step*5 | disk | L:l | start_relay | start_envoy""",
    "endpoints that the next Envoy does not ask for, since it refuses their cluster": """
        step | connect_relay | C:b E:b | step*2 | relay_to_server | server_to_relay | step*2 |
        envoy_handles | wait | step*2 | relay_hears | disconnect_relay | step | envoy_handles |
        C:b:bad E:b | step | start_envoy""",
    "endpoints on their way to an Envoy that asks for them no longer": """
        C:a C:c:two | step | connect_relay | step*2 | server_to_relay | relay_hears |
        relay_to_envoy | relay_to_server | step*15 | C:c:two E:c | step*2 | C:a:bad E:a""",
}
"""Each of them ended wrong once: found at random, and made as short as it gets."""


def steps_of(history: str) -> list[object]:
    steps: list[object] = []
    for step_text in map(str.strip, history.split("|")):
        if step_text[0].islower():
            step, _, times = step_text.partition("*")
            steps += [step] * int(times or 1)
        else:
            steps.append(world(step_text.strip("-")))
    return steps


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_recorded_histories_end_consistently(history: str) -> None:
    assert_consistent(*run_to_end(steps_of(history)))
