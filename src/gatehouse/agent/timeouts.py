"""How long what an agent runs may take to end, and how soon what died begins again."""

from __future__ import annotations

import math

RESTART_BACKOFF_INITIAL_SECONDS = 0.2
RESTART_BACKOFF_MAX_SECONDS = 10.0
"""Seconds between starts of a process that keeps dying: doubled from first to maximum."""

RESTART_BACKOFF_RESET_SECONDS = 10.0
"""A process that lived this long died of something new: the pauses begin anew."""

DRAIN_SECONDS, MAX_DRAIN_SECONDS = 25.0, 3600
"""How long connections may take to finish when the agent is told to stop: unless it is said, and at
the most."""

_SHUTDOWN_SECONDS = 60


def shutdown_seconds(drain: float) -> int:
    """Give how long connections may keep a worker that was told to finish.

    A minute; longer where ``drain``, the time for the end of all, is longer: who gives connections
    that much then means them to have it at a reload, too.
    """
    return max(_SHUTDOWN_SECONDS, math.ceil(drain))


def sidecar_drain_seconds(drain: float) -> float:
    """Give how long a companion's sockets stay open after the last worker that uses them was told.

    By then it must have finished.
    """
    return shutdown_seconds(drain) + 5
