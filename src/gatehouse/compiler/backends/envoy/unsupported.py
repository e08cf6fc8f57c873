"""How what Envoy leaves out is said: the object, the field, and why."""

from __future__ import annotations

from collections.abc import Sequence


def left_out(kind: str, objects: Sequence[str], field: str, why: str) -> str:
    """Say it. ``objects``: ``namespace/name`` of those that may have it."""
    named = f"{kind} {', '.join(objects)}: " if objects else ""
    return f"{named}spec.{field}: {why}"
