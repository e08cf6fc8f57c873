"""Requests to an instance of NGINX Plus, which takes endpoints apart from files."""

from __future__ import annotations

import pytest

from fakes.agent_sessions import ABOUT, PLUS, PLUS_NAME, V1, V2, V3, session
from gatehouse.transports.agents.session import (
    AgentSession,
    ApplyResponse,
    Elapsed,
    HasVersion,
    Publish,
    Reconnected,
    Register,
    Send,
    StreamClosed,
    StreamOpen,
)


def apart(version: Publish = V1) -> AgentSession:
    """Return the session of an instance that has the files of ``version`` and no servers yet."""
    state = session()
    for event in (version, Reconnected(PLUS), StreamOpen(1)):
        state.receive(event, 0.0)
    assert state.receive(ApplyResponse("c1"), 0.0) == [Send(1, version.version, "c2", "a")]
    return state


def test_servers_are_sent_one_upstream_at_a_time_after_files() -> None:
    state = apart()
    assert state.receive(ApplyResponse("c2"), 1.0) == [Send(1, "v1", "c3", "b")]
    assert state.confirmed == ""
    assert state.receive(ApplyResponse("c3"), 1.0) == []
    assert (state.confirmed, state.sent_version, state.wake_at) == ("v1", "v1", None)


def test_only_changed_upstreams_are_sent_when_files_are_equal() -> None:
    state = apart()
    for correlation in ("c2", "c3"):
        state.receive(ApplyResponse(correlation), 1.0)
    assert state.receive(V2, 2.0) == [Send(1, "v2", "c4", "b")]
    assert state.receive(V1, 3.0) == []
    # What was on its way to the other version came between.
    assert state.receive(ApplyResponse("c4"), 4.0) == [Send(1, "v1", "c5", "b")]
    assert state.confirmed == ""
    state.receive(ApplyResponse("c5"), 5.0)
    assert state.confirmed == "v1"


def test_all_upstreams_are_sent_after_new_files() -> None:
    state = apart()
    for correlation in ("c2", "c3"):
        state.receive(ApplyResponse(correlation), 1.0)
    assert state.receive(V3, 2.0) == [Send(1, "v3", "c4", "")]
    assert state.receive(ApplyResponse("c4"), 3.0) == [Send(1, "v3", "c5", "a")]
    state.receive(ApplyResponse("c5"), 4.0)
    assert state.confirmed == "v3"


def test_rejected_upstream_does_not_block_others() -> None:
    state = apart()
    assert state.receive(ApplyResponse("c2", "no such upstream"), 1.0) == [Send(1, "v1", "c3", "b")]
    assert state.receive(ApplyResponse("c3"), 1.5) == []
    assert (state.confirmed, state.error) == ("", "upstream a: no such upstream")
    assert state.wake_at == 2.0
    assert state.receive(Elapsed(), 2.0) == [Send(1, "v1", "c4", "a")]
    state.receive(ApplyResponse("c4", "still not"), 2.0)
    assert state.wake_at == 4.0
    state.receive(Elapsed(), 4.0)
    state.receive(ApplyResponse("c5"), 4.0)
    assert (state.confirmed, state.error) == ("v1", "")


def test_servers_are_not_sent_after_rejected_files() -> None:
    state = session()
    for event in (V1, Reconnected(PLUS), StreamOpen(1)):
        state.receive(event, 0.0)
    assert state.receive(ApplyResponse("c1", "no such directive"), 0.0) == []
    assert state.receive(Elapsed(), 1.0) == [Send(1, "v1", "c2", "")]


def test_servers_are_sent_when_files_are_reported() -> None:
    state = session()
    for event in (V1, Reconnected(PLUS), HasVersion("f1")):
        state.receive(event, 0.0)
    assert state.receive(StreamOpen(1), 0.0) == [Send(1, "v1", "c1", "a")]


def test_all_servers_are_sent_on_new_connection() -> None:
    state = apart()
    for correlation in ("c2", "c3"):
        state.receive(ApplyResponse(correlation), 1.0)
    state.receive(StreamClosed(1), 2.0)
    for event in (Reconnected(PLUS), HasVersion("f1")):
        state.receive(event, 3.0)
    assert state.receive(StreamOpen(2), 3.0) == [Send(2, "v1", "c4", "a")]
    assert state.confirmed == ""


@pytest.mark.parametrize(
    "about",
    [
        ABOUT,
        Register("id", "nginx/1.31.3", features=frozenset({"api-action"})),
        Register("id", PLUS_NAME),
        Register("id", PLUS_NAME, features=frozenset({"api-action", "endpoints"})),
    ],
)
def test_endpoints_are_sent_as_files_without_api_actions(about: Register) -> None:
    state = session()
    state.receive(V1, 0.0)
    state.receive(Reconnected(about), 0.0)
    assert state.receive(StreamOpen(1), 0.0) == [Send(1, "v1", "c1", "")]
    assert state.receive(ApplyResponse("c1"), 0.0) == []
    assert state.confirmed == "v1"
