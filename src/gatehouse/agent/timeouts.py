"""Drain timeouts and restart back-off of the processes an agent runs."""

from __future__ import annotations

import math

from gatehouse.runtime.supervised_process import RestartBackoff

RESTART_BACKOFF_INITIAL_SECONDS = 0.2
RESTART_BACKOFF_MAX_SECONDS = 10.0
"""Initial and maximum pause in seconds between starts of a process that keeps dying. The pause
doubles.
"""

RESTART_BACKOFF_RESET_SECONDS = 10.0
"""A process that ran longer than this resets the back-off when it dies."""

DRAIN_SECONDS, MAX_DRAIN_SECONDS = 25.0, 3600
"""Default and maximum time in seconds for connections to finish when the agent stops."""

_SHUTDOWN_SECONDS = 60


def restart_backoff(after_steady: float | None = None) -> RestartBackoff:
    """Return the initial back-off of a process.

    `after_steady`: pause in seconds after the death of a process that ran for long, by default the
    initial pause.
    """
    return RestartBackoff(
        RESTART_BACKOFF_INITIAL_SECONDS,
        RESTART_BACKOFF_MAX_SECONDS,
        RESTART_BACKOFF_RESET_SECONDS,
        after_steady,
    )


def shutdown_seconds(drain: float) -> int:
    """Return the time in seconds for which connections may keep an old NGINX worker running.

    At least one minute. Longer if `drain`, the drain timeout at agent stop, is longer: a user who
    configures that much time for connections expects it at a reload, too.
    """
    return max(_SHUTDOWN_SECONDS, math.ceil(drain))


def sidecar_drain_seconds(drain: float) -> float:
    """Return the time in seconds for which sidecar sockets stay open after a reload.

    By then the last worker that uses them must have finished.
    """
    return shutdown_seconds(drain) + 5
