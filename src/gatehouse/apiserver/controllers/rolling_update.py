"""Number of Pods of each ReplicaSet of a Deployment, step by step. No I/O.

https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#strategy. Deviation: if the
number of replicas changes during an update, only the newest ReplicaSet changes, instead of all in
proportion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class ReplicaSetState(msgspec.Struct, frozen=True):
    """State of one ReplicaSet. Sequences of several are ordered oldest first."""

    name: str
    replicas: int
    """Desired replicas."""
    pods: int
    """Number of Pods, including those being deleted."""
    available: int


class RolloutLimits(msgspec.Struct, frozen=True):
    """Limits of an update around the number of replicas."""

    most: int
    least: int
    """Minimum number of available Pods."""


def bounds(spec: Mapping[str, Any]) -> RolloutLimits:
    """Return the limits of a rolling update. `maxSurge` is rounded up, `maxUnavailable` down."""
    replicas = int(spec.get("replicas", 1))
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = _number(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    missing = _number(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    if surge == 0 and missing == 0:
        # Otherwise the update could not progress.
        missing = 1
    return RolloutLimits(replicas + surge, max(0, replicas - missing))


def scales(
    spec: Mapping[str, Any], newest: ReplicaSetState, older: Sequence[ReplicaSetState]
) -> dict[str, int]:
    """Return the next desired replicas by ReplicaSet. They are unchanged if nothing can progress.

    `spec` is that of the Deployment. Call again after every change that results from it.
    """
    replicas = int(spec.get("replicas", 1))
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        ended = not any(each.pods for each in older)
        return {
            **{each.name: 0 for each in older},
            newest.name: replicas if ended else newest.replicas,
        }
    allowed = bounds(spec)
    desired = newest.replicas + sum(each.replicas for each in older)
    grown = min(replicas, newest.replicas + max(0, allowed.most - desired))
    if grown != newest.replicas:
        return {newest.name: grown, **{each.name: each.replicas for each in older}}
    return {newest.name: grown, **_shrunk(newest, older, allowed, desired)}


def _shrunk(
    newest: ReplicaSetState, older: Sequence[ReplicaSetState], allowed: RolloutLimits, desired: int
) -> dict[str, int]:
    """Reduce older ReplicaSets: first by unavailable Pods, then by surplus ones."""
    left = {each.name: each.replicas for each in older}
    spare = desired - allowed.least - max(0, newest.replicas - newest.available)
    for each in older:
        taken = max(0, min(spare, each.replicas - each.available))
        left[each.name] -= taken
        spare -= taken
    serving = newest.available + sum(min(each.available, left[each.name]) for each in older)
    spare = min(spare, serving - allowed.least)
    for each in older:
        taken = max(0, min(spare, left[each.name]))
        left[each.name] -= taken
        spare -= taken
    return left


def _number(value: Any, of: int, rounded: Any) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return int(rounded(of * int(value[:-1]) / 100))
    return int(value)
