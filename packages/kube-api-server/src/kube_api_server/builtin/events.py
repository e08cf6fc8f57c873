"""Conversion between Events of the core group and of events.k8s.io, which share their objects."""

from __future__ import annotations

from kube_base.types.objects import Object

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
