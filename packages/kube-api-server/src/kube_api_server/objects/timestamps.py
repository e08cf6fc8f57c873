"""Timestamps in the form of Kubernetes, and ages in the form of `kubectl get`."""

from __future__ import annotations

import functools
import time
from datetime import UTC, datetime
from typing import Any


def now() -> str:
    """Return the current time in RFC 3339, in seconds."""
    return _written(int(time.time()))


@functools.lru_cache(8)
def _written(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: Any) -> datetime | None:
    """Parse a time; None if it is invalid."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def age(text: Any, end: Any = None) -> str:
    """Return the time since `text`, such as `5m30s`, until now or `end`."""
    since = parse_time(text)
    if since is None:
        return "<unknown>"
    return duration(int(((parse_time(end) or datetime.now(UTC)) - since).total_seconds()))


def duration(seconds: int) -> str:
    """Format a duration in at most two units. The smaller one is omitted for long durations."""
    if seconds < 0:
        return "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, hours = divmod(hours, 24)
    if days < 8:
        return f"{days}d{hours}h" if hours else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, days = divmod(days, 365)
    return f"{years}y{days}d" if years < 8 and days else f"{years}y"
