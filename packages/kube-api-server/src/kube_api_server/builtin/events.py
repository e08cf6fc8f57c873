"""Conversion and validation of Events of the core group and of events.k8s.io.

Both groups share their objects, which are stored as those of the core group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kube_api_server.causes import invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_api_server.objects import timestamps
from kube_api_server.objects.metadata import check_label_name
from kube_base.types.objects import Object

_MAX_TEXT, _MAX_MESSAGE = 128, 1024
_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
"""Names in the core group by field of events.k8s.io/v1."""

_OMITTED = ("reportingComponent", "reportingInstance")
"""Fields of the core group that events.k8s.io/v1 does not have if they are empty."""

_BACK = {core: newer for newer, core in _NAMES.items()}


def to_core(event: Object) -> Object:
    """Convert an Event of events.k8s.io/v1 to the core group."""
    return {**{_NAMES.get(key, key): value for key, value in event.items()}, "apiVersion": "v1"}


def from_core(event: Object) -> Object:
    """Convert an Event of the core group to events.k8s.io/v1."""
    return {
        **{
            _BACK.get(key, key): value
            for key, value in event.items()
            if value or key not in _OMITTED
        },
        "apiVersion": "events.k8s.io/v1",
    }


_IMMUTABLE = {
    "involvedObject": "involvedObject",
    "reason": "reason",
    "message": "message",
    "source": "source",
    "firstTimestamp": "firstTimestamp",
    "lastTimestamp": "lastTimestamp",
    "count": "count",
    "type": "type",
    "action": "action",
    "related": "related",
    "reportingComponent": "reportingController",
    "reportingInstance": "reportingInstance",
}
"""Fields that an update in events.k8s.io/v1 does not change, and their names in messages."""


def check_event(event: Object, _: Object | None) -> Iterator[Cause]:
    """Yield the violations of an Event in the core group."""
    return _consistency(event, "reportingComponent")


def check_new_event(event: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of an Event in events.k8s.io/v1, in the form of the core group."""
    yield from _consistency(event, "reportingController")
    if old is None:
        yield from _new(event)
    else:
        if event.get("series") != old.get("series"):
            yield from _series(event)
        for field, name in _IMMUTABLE.items():
            if (event.get(field) or None) != (old.get(field) or None):
                yield invalid_cause(name, event.get(field), "field is immutable")
        if _moment(event) != _moment(old):
            yield invalid_cause("eventTime", event.get("eventTime"), "field is immutable")


def _consistency(event: Object, reporter: str) -> Iterator[Cause]:
    """Yield the violations that Events of both groups can have."""
    namespace = event["metadata"].get("namespace") or ""
    concerned = (event.get("involvedObject") or {}).get("namespace") or ""
    is_timed, place = bool(event.get("eventTime")), "involvedObject.namespace"
    homes = ("", "default", "kube-system") if is_timed else ("", "default")
    agrees = namespace in homes if not concerned else is_timed or concerned == namespace
    if not agrees:
        yield invalid_cause(place, concerned, "does not match event.namespace")
    if not is_timed:
        return
    for field, name, most in (
        ("reportingComponent", reporter, 0),
        ("reportingInstance", "reportingInstance", _MAX_TEXT),
        ("action", "action", _MAX_TEXT),
        ("reason", "reason", _MAX_TEXT),
        ("message", "", _MAX_MESSAGE),
    ):
        text = event.get(field) or ""
        if not text and name:
            yield required_cause(name)
        if most and len(text.encode()) > most:
            yield invalid_cause(name or field, "", f"can have at most {most} characters")
    yield from check_label_name(event.get("reportingComponent") or "", reporter)


def _new(event: Object) -> Iterator[Cause]:
    yield from _series(event)
    if not event.get("eventTime"):
        yield required_cause("eventTime")
    if (kind := event.get("type") or "") not in ("Normal", "Warning"):
        yield invalid_cause("type", "", f"has invalid value: {kind}")
    for field in ("firstTimestamp", "lastTimestamp", "count"):
        if event.get(field):
            yield invalid_cause(field, "", "needs to be unset")
    source = event.get("source") or {}
    if source.get("component") or source.get("host"):
        yield invalid_cause("source", "", "needs to be unset")


def _series(event: Object) -> Iterator[Cause]:
    if (series := event.get("series")) is not None:
        if (series.get("count") or 0) < 2:
            yield invalid_cause("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield required_cause("series.lastObservedTime")


def _moment(event: Object) -> Any:
    time = event.get("eventTime")
    return timestamps.parse_time(time) or time
