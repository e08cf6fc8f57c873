"""Events of both API groups are the same objects, seen under different names."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
"""What fields of events.k8s.io/v1 are called in the core group."""

_BACK = {core: newer for newer, core in _NAMES.items()}


def to_core(event: Object) -> Object:
    """Give an event of events.k8s.io/v1 as one of the core group."""
    return {**{_NAMES.get(key, key): value for key, value in event.items()}, "apiVersion": "v1"}


def from_core(event: Object) -> Object:
    """Give an event of the core group as one of events.k8s.io/v1."""
    return {
        **{_BACK.get(key, key): value for key, value in event.items()},
        "apiVersion": "events.k8s.io/v1",
    }
