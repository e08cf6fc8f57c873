"""Content and rate of the failure log."""

from __future__ import annotations

from gatehouse.sidecars.base.failure_log import MAX_MESSAGES, REPEAT_SECONDS, FailureLog

ONE = "connector: cluster c-a, endpoint [::1]:443"


def test_failure_is_logged_at_once_then_once_a_minute_with_count() -> None:
    messages: list[str] = []
    now = 0.0
    failures = FailureLog(messages.append, lambda: now)
    for _ in range(5):
        failures.record(ONE, "no")
    failures.record(ONE, "another")
    now = REPEAT_SECONDS
    failures.record(ONE, "no")
    assert messages == [
        "connector: cluster c-a, endpoint [::1]:443: no",
        "connector: cluster c-a, endpoint [::1]:443: another",
        "connector: cluster c-a, endpoint [::1]:443: no (4 more since the last message)",
    ]


def test_failure_log_limits_number_of_messages() -> None:
    messages: list[str] = []
    failures = FailureLog(messages.append, lambda: 0.0)
    for number in range(3 * MAX_MESSAGES):
        failures.record(ONE, str(number))
    assert len(messages) == 3 * MAX_MESSAGES
    assert len(failures._logged) <= MAX_MESSAGES
