"""Reasons why no server of a cluster is ready, for the response to an authenticated client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gatehouse.sidecars.reviewer.config import UNREADY

MAX_NAMED_IN_RESPONSE = 10
"""Maximum number of servers in a response."""

_Reasons = dict[str, dict[str, str]]


def reasons(directory: Path, cluster: str) -> bytes:
    """Return the reasons as the inside of a JSON string; empty if none are known."""
    try:
        known = msgspec.json.decode((directory / UNREADY).read_bytes(), type=_Reasons)
    except (OSError, msgspec.DecodeError):
        return b""
    text = summary(known.get(cluster, {}))
    return msgspec.json.encode(text)[1:-1]


def summary(servers: Mapping[str, str]) -> str:
    """Return server and reason of up to ten servers as text."""
    parts = [f"{server}: {reason}" for server, reason in sorted(servers.items())]
    if len(parts) > MAX_NAMED_IN_RESPONSE:
        parts[MAX_NAMED_IN_RESPONSE:] = [f"and {len(parts) - MAX_NAMED_IN_RESPONSE} more"]
    return "; ".join(parts)
