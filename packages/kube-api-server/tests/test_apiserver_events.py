"""Events of the core group and of events.k8s.io, which Kubernetes checks differently."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.builtin.events import check_event, check_new_event
from kube_base.types.objects import Object

TIME = "2026-01-01T00:00:00.000001Z"
TIMED = {
    "eventTime": TIME,
    "type": "Normal",
    "reason": "R",
    "action": "A",
    "reportingComponent": "a.example/b",
    "reportingInstance": "c",
}


def event(concerned: str = "shop", **fields: Any) -> Object:
    """Build an Event of the namespace `shop`, as it is stored."""
    metadata = {"name": "e", "namespace": "shop"}
    return {"metadata": metadata, "involvedObject": {"namespace": concerned}, **fields}


def fields(obj: Object, old: Object | None = None, *, new: bool = False) -> set[str]:
    return {cause.field for cause in (check_new_event if new else check_event)(obj, old)}


def test_event_without_a_time_concerns_its_namespace() -> None:
    assert fields(event()) == set()
    assert fields(event("other")) == fields(event("")) == {"involvedObject.namespace"}


def test_event_with_a_time_may_concern_another_namespace_and_says_who_reports() -> None:
    assert fields(event("other", **TIMED)) == set()
    assert fields(event("", **TIMED)) == {"involvedObject.namespace"}
    assert fields(event(eventTime=TIME)) == {
        *("reportingComponent", "reportingInstance", "action", "reason"),
    }
    assert fields(event(eventTime=TIME), new=True) >= {"reportingController", "type"}


@pytest.mark.parametrize("field", ["action", "reason", "reportingInstance"])
def test_texts_are_short(field: str) -> None:
    assert fields(event(**{**TIMED, field: "x" * 128})) == set()
    assert fields(event(**{**TIMED, field: "x" * 129})) == {field}


def test_new_event_has_no_fields_of_old_ones() -> None:
    old: Object = {
        "count": 2,
        "firstTimestamp": TIME,
        "lastTimestamp": TIME,
        "source": {"host": "h"},
    }
    assert fields(event(**TIMED, **old)) == set()
    assert fields(event(**TIMED, **old), new=True) == old.keys()


def test_only_series_and_metadata_of_a_new_event_change() -> None:
    old = event(**TIMED)
    series = {"count": 2, "lastObservedTime": TIME}
    assert fields(event(**TIMED, series=series), old, new=True) == set()
    assert fields(event(**TIMED, series={"count": 1}), old, new=True) == {
        *("series.count", "series.lastObservedTime"),
    }
    later = {**TIMED, "eventTime": "2026-01-02T00:00:00Z", "reason": "Q"}
    assert fields(event(**later), old, new=True) == {"eventTime", "reason"}
    assert fields(event(**later), old) == set()
    same = {**TIMED, "eventTime": TIME.replace("Z", "+00:00")}
    assert fields(event(**same), old, new=True) == set()
