"""Schedules and time zones of CronJobs."""

from __future__ import annotations

import zoneinfo

import pytest

from kube_api_server.builtin import cron_schedules


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "0 0 1 1 0",
        "59 23 31 12 6",
        "*/15 0-12/2 1,15 jan-MAR mon,Fri",
        "? * ? * ?",
        "@daily",
        "@every 1h30m",
        "TZ=UTC 0 * * * *",
    ],
)
def test_schedule_of_five_fields_or_a_descriptor_is_valid(text: str) -> None:
    assert cron_schedules.schedule_problem(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* 5-3 * * *", "beginning of range (5) beyond end of range (3): 5-3"),
        ("*/0 * * * *", "failed to parse int from 0"),
        ("* * * january *", "failed to parse int from january"),
        ("1-2-3 * * * *", "failed to parse int from 1-2-3"),
        ("٣ * * * *", "failed to parse int from ٣"),
        ("0" * 5000 + " * * * *", "failed to parse int from " + "0" * 5000),
        ("*/" + "1" * 5000 + " * * * *", "failed to parse int from " + "1" * 5000),
        ("@fortnightly", "unrecognized descriptor: @fortnightly"),
        ("@every day", "unrecognized descriptor: @every day"),
    ],
)
def test_other_schedule_has_a_problem(text: str, why: str) -> None:
    assert cron_schedules.schedule_problem(text) == why


def test_zone_is_one_of_the_database() -> None:
    assert cron_schedules.zone_problem("Europe/Berlin") == ""
    for name in ("Mars/Base", "../UTC", "-UTC", "Etc//UTC"):
        assert cron_schedules.zone_problem(name) == f"unknown time zone {name}"
    assert "explicit time zone" in cron_schedules.zone_problem("local")


def test_machine_without_a_database_accepts_any_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "ZoneInfo", _no_zone)
    assert cron_schedules.zone_problem("Europe/Berlin") == ""
    assert cron_schedules.zone_problem("../UTC") == "unknown time zone ../UTC"


def _no_zone(name: str) -> None:
    raise zoneinfo.ZoneInfoNotFoundError(name)
