"""How many Pods each ReplicaSet of a Deployment is to have, step by step. Pure.

https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#strategy. What differs: when
the number of replicas changes amid an update, the difference is the newest ReplicaSet's, and not
spread over all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class ReplicaSetState(msgspec.Struct, frozen=True):
    """One ReplicaSet as it stands; older ones come first where there are several."""

    name: str
    replicas: int
    """As asked for."""
    pods: int
    """That there are, also those that are about to end."""
    available: int


class RolloutLimits(msgspec.Struct, frozen=True):
    """How far an update may stray from the number of replicas."""

    most: int
    least: int
    """Of Pods that are available."""


def bounds(spec: Mapping[str, Any]) -> RolloutLimits:
    """Give the bounds of a rolling update; shares are rounded up for more, down for fewer."""
    replicas = int(spec.get("replicas", 1))
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = _number(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    missing = _number(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    if surge == 0 and missing == 0:
        # Otherwise nothing could ever move.
        missing = 1
    return RolloutLimits(replicas + surge, max(0, replicas - missing))


def scales(
    spec: Mapping[str, Any], newest: ReplicaSetState, older: Sequence[ReplicaSetState]
) -> dict[str, int]:
    """Give the numbers to ask for next, by ReplicaSet; the same as now where nothing moves.

    ``spec`` is the Deployment's. Whatever this leads to is looked at again.
    """
    replicas = int(spec.get("replicas", 1))
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        ended = not any(each.pods for each in older)
        return {
            **{each.name: 0 for each in older},
            newest.name: replicas if ended else newest.replicas,
        }
    allowed = bounds(spec)
    asked = newest.replicas + sum(each.replicas for each in older)
    grown = min(replicas, newest.replicas + max(0, allowed.most - asked))
    if grown != newest.replicas:
        return {newest.name: grown, **{each.name: each.replicas for each in older}}
    return {newest.name: grown, **_shrunk(newest, older, allowed, asked)}


def _shrunk(
    newest: ReplicaSetState, older: Sequence[ReplicaSetState], allowed: RolloutLimits, asked: int
) -> dict[str, int]:
    """Take Pods from older ReplicaSets: first those that serve nobody, then what is spare."""
    left = {each.name: each.replicas for each in older}
    spare = asked - allowed.least - max(0, newest.replicas - newest.available)
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
