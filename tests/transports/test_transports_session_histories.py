"""Requests to one instance after any history of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fakes.agent_sessions import ABOUT, FIELD, PLUS, STOPPED, V1, V2, V3, session
from gatehouse.transports.agents.session import (
    AGENT_RETRIES,
    AgentEvent,
    AgentSession,
    ApplyResponse,
    Elapsed,
    HasFiles,
    HasVersion,
    Health,
    Publish,
    Reconnected,
    Register,
    Restarted,
    Send,
    SeparateEndpoints,
    StreamClosed,
    StreamOpen,
)

ABOUTS = st.sampled_from([Register("", ""), ABOUT, PLUS, FIELD, STOPPED])

EVENTS: st.SearchStrategy[AgentEvent] = st.one_of(
    st.sampled_from([Publish(""), Publish("v4"), V1, V2, V3]),
    st.builds(Register, st.sampled_from(["", "id"]), st.just("p")),
    ABOUTS,
    st.builds(Reconnected, ABOUTS),
    st.builds(Health, st.sampled_from(["", "dead"])),
    st.just(HasFiles(("/mime.types",))),
    st.builds(Restarted, ABOUTS),
    st.builds(HasVersion, st.sampled_from(["", "v1", "v2", "f1", "f2"])),
    st.builds(StreamOpen, st.integers(1, 5)),
    st.builds(StreamClosed, st.integers(1, 5)),
    st.builds(
        ApplyResponse, st.sampled_from([f"c{n}" for n in range(1, 8)]), st.sampled_from(["", "x"])
    ),
    st.just(Elapsed()),
)


@given(st.lists(st.tuples(EVENTS, st.floats(0.0, 90.0)), max_size=40))
def test_invariants_hold_for_any_history(history: list[tuple[AgentEvent, float]]) -> None:
    """Never two requests at once, never a stale version, and always a way to the desired one."""
    state, now = session(), 0.0
    sent: dict[str, str] = {}
    for event, pause in history:
        now += pause
        busy = state.in_flight
        effects = state.receive(event, now)
        sends = [effect for effect in effects if isinstance(effect, Send)]
        for send in sends:
            assert send.version == state.desired
            assert send.generation == state.generation != 0
            assert send.correlation not in sent
            sent[send.correlation] = send.version
        assert len(sends) <= 1
        if sends and busy is not None:
            assert state.in_flight is not busy
        assert not (state.problem and (sends or state.confirmed))
        if state.generation and state.desired and state.confirmed != state.desired:
            assert state.wake_at is not None or not state.about.nginx_id or state.problem
    _converges(state, now)


def _converges(state: AgentSession, now: float) -> None:
    state.receive(Publish("last", lambda: SeparateEndpoints("f1", (("a", "a1"), ("c", "c1")))), now)
    state.receive(Register("id", "p"), now)
    state.receive(Health(""), now)
    state.receive(HasFiles(()), now)
    state.receive(StreamOpen(100), now)
    for _ in range(8):
        request = state.in_flight
        if request is not None:
            state.receive(ApplyResponse(request.correlation), now)
    assert state.confirmed == "last"
    assert state.wake_at is None


STEPS = st.sampled_from([V1, V2, V3, "done", "refused", "lost", "wait"])


@given(st.lists(STEPS, max_size=40))
def test_version_is_confirmed_only_with_files_and_servers(
    history: list[Publish | str],
) -> None:
    """Holds if requests are executed, rejected, or executed with a lost response."""
    state, now, stream = session(), 0.0, 0
    versions = {file_set.version: file_set.separate_endpoints() for file_set in (V1, V2, V3)}
    has: dict[str, str] = {}

    def carry_out(send: Send) -> None:
        parts = versions[send.version]
        assert parts is not None
        if send.upstream:
            has[send.upstream] = dict(parts.upstreams)[send.upstream]
        else:
            # Upstreams of other files have whatever they had.
            has[""] = parts.files

    request: Send | None = None
    for step in ["lost", *history, *(["done", "wait"] * 8)]:
        now += 1.0
        events: list[AgentEvent] = []
        if isinstance(step, Publish):
            events = [step]
        elif step == "wait":
            now += AGENT_RETRIES.maximum if request is None else 0.0
            events = [Elapsed()]
        elif step == "lost":
            if request is not None:
                carry_out(request)
            stream += 1
            events = [StreamClosed(stream - 1), Reconnected(PLUS), StreamOpen(stream)]
            request = None
        elif request is not None:
            if step == "done":
                carry_out(request)
            events = [ApplyResponse(request.correlation, "" if step == "done" else "no")]
            request = None
        for event in events:
            for effect in state.receive(event, now):
                if isinstance(effect, Send):
                    assert request is None
                    request = effect
        if state.desired and state.confirmed == state.desired:
            parts = versions[state.desired]
            assert parts is not None
            expected = {"": parts.files, **dict(parts.upstreams)}
            assert {part: has.get(part) for part in expected} == expected
    assert state.confirmed == state.desired
