"""Requests to one instance, and their timing."""

from __future__ import annotations

import pytest

from fakes.agent_sessions import ABOUT, DEADLINE_SECONDS, session
from gatehouse.dataplane.agent_limits import MAX_ERROR_CHARACTERS, MAX_UNMANAGED_FILES
from gatehouse.transports.agents.session import (
    AGENT_RETRIES,
    MAX_MISSED_DEADLINES,
    MAX_UNANSWERED_REQUESTS,
    AgentEvent,
    AgentSession,
    ApplyResponse,
    Elapsed,
    End,
    FileFetched,
    HasFiles,
    HasVersion,
    Publish,
    Reconnected,
    Register,
    Restarted,
    Send,
    StreamClosed,
    StreamOpen,
)


def connected(version: str = "v1") -> AgentSession:
    state = session()
    for event in (Publish(version), Reconnected(ABOUT)):
        assert state.receive(event, 0.0) == []
    assert state.receive(StreamOpen(1), 0.0) == [Send(1, version, "c1")]
    return state


def test_request_is_sent_when_stream_is_open_and_nginx_is_known() -> None:
    state = session()
    state.receive(Publish("v1"), 0.0)
    assert state.receive(StreamOpen(1), 0.0) == []
    assert state.receive(Register("", ""), 0.0) == []
    assert state.receive(Register("id", "nginx/1"), 0.0) == [Send(1, "v1", "c1")]


def test_request_is_not_sent_when_instance_serves_the_version() -> None:
    state = session()
    for event in (Publish("v1"), Reconnected(ABOUT), HasVersion("v1")):
        state.receive(event, 0.0)
    assert state.receive(StreamOpen(1), 0.0) == []
    assert (state.confirmed, state.sent_version) == ("v1", "v1")


@pytest.mark.parametrize("later", [[StreamOpen(1), Publish("v1")], [Publish("v1"), StreamOpen(1)]])
def test_request_is_not_sent_when_version_was_reported_before_publish(
    later: list[AgentEvent],
) -> None:
    state = session()
    for event in (Reconnected(ABOUT), HasVersion("v1"), *later):
        assert state.receive(event, 1.0) == []
    assert (state.confirmed, state.sent_version) == ("v1", "v1")
    assert state.receive(Publish("v2"), 2.0) == [Send(1, "v2", "c1")]


@pytest.mark.parametrize("then", [Reconnected(ABOUT), Restarted(ABOUT), HasVersion("")])
def test_reported_version_expires_on_reconnect_restart_or_empty_report(then: AgentEvent) -> None:
    state = session()
    for event in (Reconnected(ABOUT), HasVersion("v1"), StreamOpen(1), then):
        state.receive(event, 0.0)
    assert state.receive(Publish("v1"), 1.0) == [Send(1, "v1", "c1")]


def test_reported_version_is_valid_until_next_request() -> None:
    state = session()
    for event in (Reconnected(ABOUT), HasVersion("v1"), StreamOpen(1), Publish("v2")):
        state.receive(event, 0.0)
    assert state.receive(Publish("v1"), 1.0) == []
    assert state.receive(ApplyResponse("c1"), 2.0) == [Send(1, "v1", "c2")]


def test_request_is_sent_when_instance_reconnects_without_version() -> None:
    state = connected()
    state.receive(ApplyResponse("c1"), 1.0)
    state.receive(StreamClosed(1), 2.0)
    state.receive(Reconnected(ABOUT), 3.0)
    assert state.receive(StreamOpen(2), 3.0) == [Send(2, "v1", "c2")]
    assert state.confirmed == ""


def test_only_latest_version_follows_request_in_flight() -> None:
    state = connected()
    assert state.receive(Publish("v2"), 1.0) == []
    assert state.receive(Publish("v3"), 2.0) == []
    assert state.receive(ApplyResponse("c1"), 3.0) == [Send(1, "v3", "c2")]
    assert state.confirmed == "v1"


def test_rejected_version_is_retried_with_back_off() -> None:
    state = connected()
    now, pauses = 0.0, []
    for number in range(1, 10):
        assert state.receive(ApplyResponse(f"c{number}", "no such directive"), now) == []
        wake = state.wake_at
        assert wake is not None
        assert state.receive(Elapsed(), wake - 0.01) == []
        pauses.append(wake - now)
        now = wake
        assert state.receive(Elapsed(), now) == [Send(1, "v1", f"c{number + 1}")]
        assert state.error == "no such directive"
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == AGENT_RETRIES.maximum


def test_error_is_truncated_when_too_long() -> None:
    state = connected()
    state.receive(ApplyResponse("c1", "no such directive" + " " * 4_000_000), 0.0)
    assert state.error.startswith("no such directive")
    assert len(state.error) == MAX_ERROR_CHARACTERS


def test_newer_version_is_sent_without_back_off() -> None:
    state = connected()
    state.receive(ApplyResponse("c1", "bad"), 0.0)
    assert state.receive(Publish("v2"), 0.1) == [Send(1, "v2", "c2")]
    assert state.error == ""


def test_missing_response_counts_as_rejection_after_deadline() -> None:
    state = connected()
    assert state.wake_at == DEADLINE_SECONDS
    assert state.receive(Elapsed(), DEADLINE_SECONDS) == []
    assert state.error == "no response within 60 s"
    assert state.wake_at == DEADLINE_SECONDS + 1


def test_fetching_extends_deadline_up_to_a_limit() -> None:
    state = connected()
    moments = [50.0, 100.0, 150.0, 200.0, 250.0, 299.0]
    for now in moments:
        assert state.receive(FileFetched(), now) == []
        assert state.receive(Elapsed(), now) == []
        assert state.wake_at == min(now + DEADLINE_SECONDS, MAX_MISSED_DEADLINES * DEADLINE_SECONDS)
    assert state.error == ""
    state.receive(Elapsed(), MAX_MISSED_DEADLINES * DEADLINE_SECONDS)
    assert state.error == "no response within 60 s"


def test_stream_is_ended_after_unanswered_requests() -> None:
    state = connected()
    for _ in range(MAX_UNANSWERED_REQUESTS - 1):
        now = state.wake_at or 0.0
        assert state.receive(Elapsed(), now) == []
        # Neither answers to something else nor newer versions make up for it.
        assert state.receive(ApplyResponse("made up"), now) == []
        (sent,) = state.receive(Publish(f"v-{now}"), now)
        assert isinstance(sent, Send)
    assert state.receive(Elapsed(), state.wake_at or 0.0) == [End(1)]


def test_stream_stays_open_when_responses_are_late() -> None:
    state = connected()
    for number in range(3 * MAX_UNANSWERED_REQUESTS):
        now = state.wake_at or 0.0
        assert state.receive(Elapsed(), now) == []
        state.receive(ApplyResponse(f"c{number + 1}"), now)
        state.receive(Publish(f"v-{number}"), now)
    assert state.generation == 1


def test_response_is_accepted_after_deadline() -> None:
    state = connected()
    state.receive(Elapsed(), DEADLINE_SECONDS)
    assert state.receive(ApplyResponse("c1"), DEADLINE_SECONDS + 0.5) == []
    assert (state.confirmed, state.error, state.wake_at) == ("v1", "", None)


def test_response_is_accepted_on_later_stream() -> None:
    state = connected()
    state.receive(StreamClosed(1), 1.0)
    state.receive(StreamOpen(2), 2.0)
    assert state.receive(ApplyResponse("c1"), 3.0) == []
    assert state.confirmed == "v1"
    assert state.in_flight is None


def test_response_without_request_is_ignored() -> None:
    state = connected()
    assert state.receive(ApplyResponse("c99"), 1.0) == []
    assert state.receive(ApplyResponse("c99", "bad"), 1.0) == []
    assert (state.confirmed, state.error) == ("", "")


def test_late_end_of_old_stream_keeps_new_stream() -> None:
    state = connected()
    assert state.receive(StreamOpen(2), 1.0) == [End(1), Send(2, "v1", "c2")]
    assert state.receive(StreamClosed(1), 2.0) == []
    assert state.generation == 2


def test_request_is_sent_when_new_process_uses_open_stream() -> None:
    state = connected()
    state.receive(ApplyResponse("c1"), 1.0)
    assert state.receive(Restarted(ABOUT), 2.0) == [Send(1, "v1", "c2")]
    assert state.confirmed == ""
    assert state.receive(Restarted(ABOUT), 3.0) == []
    assert state.sent_version == "v1"


@pytest.mark.parametrize("event", [Reconnected, Restarted])
def test_features_are_replaced_when_process_restarts(
    event: type[Reconnected] | type[Restarted],
) -> None:
    state = connected()
    state.receive(Register("", ""), 1.0)
    assert state.about == ABOUT
    state.receive(event(Register("id", "nginx/1.31.3")), 1.0)
    assert state.about.features == frozenset()


def test_response_to_previous_process_is_ignored_after_restart() -> None:
    state = connected()
    state.receive(StreamClosed(1), 1.0)
    assert state.receive(StreamOpen(2), 2.0) == [Send(2, "v1", "c2")]
    state.receive(Restarted(ABOUT), 3.0)
    assert (state.pending_version("c1"), state.pending_version("c2")) == ("", "v1")
    state.receive(ApplyResponse("c1"), 4.0)
    assert state.confirmed == ""


def test_pending_version_is_known_until_response() -> None:
    state = connected()
    assert (state.pending_version("c1"), state.pending_version("c2")) == ("v1", "")
    state.receive(StreamClosed(1), 1.0)
    assert state.pending_version("c1") == "v1"
    state.receive(StreamOpen(2), 2.0)
    state.receive(ApplyResponse("c2"), 3.0)
    assert state.pending_version("c2") == ""


def test_nothing_is_sent_after_withdrawal() -> None:
    state = connected()
    state.receive(Publish(""), 1.0)
    assert state.receive(ApplyResponse("c1", "bad"), 2.0) == []
    assert state.wake_at is None


def test_unmanaged_files_are_remembered_up_to_a_limit() -> None:
    state = session()
    state.receive(HasFiles(("/etc/nginx/mime.types",)), 0.0)
    state.receive(HasFiles(()), 1.0)
    assert state.unmanaged == {"/etc/nginx/mime.types"}
    state.receive(HasFiles(tuple(f"/etc/nginx/{n}" for n in range(MAX_UNMANAGED_FILES + 9))), 2.0)
    assert len(state.unmanaged) == MAX_UNMANAGED_FILES


def test_attempt_is_incremented_by_each_failed_file_request() -> None:
    state = connected()
    state.receive(ApplyResponse("c1"), 0.0)
    assert state.attempt == 0
    state.receive(Publish("v2"), 1.0)
    state.receive(StreamClosed(1), 2.0)
    assert state.attempt == 1
    state.receive(StreamOpen(2), 3.0)
    state.receive(ApplyResponse("c3", "no"), 4.0)
    assert state.attempt == 2
    state.receive(Elapsed(), 4.0 + DEADLINE_SECONDS)
    state.receive(Elapsed(), 5.0 + 2 * DEADLINE_SECONDS)
    assert state.attempt == 3
