"""Drain timeouts and restart back-off of the processes an agent runs."""

from __future__ import annotations

import math

from kube_base.runtime.backoff import BackoffPolicy

RESTARTS = BackoffPolicy(first=0.2, maximum=10.0, steady=10.0, immediate=1)
"""Back-off between starts of a process that keeps dying. The first restart is immediate."""

DRAIN_SECONDS, MAX_DRAIN_SECONDS = 25.0, 3600
"""Default and maximum time in seconds for connections to finish when the agent stops."""

_SHUTDOWN_SECONDS = 60


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
