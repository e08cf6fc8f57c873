"""Format of findings about unsupported settings: the object, the field and the reason."""

from __future__ import annotations

from collections.abc import Sequence


def left_out(kind: str, objects: Sequence[str], field: str, why: str) -> str:
    """Format a finding. ``objects``: ``namespace/name`` of those that may have the field."""
    named = f"{kind} {', '.join(objects)}: " if objects else ""
    return f"{named}spec.{field}: {why}"
