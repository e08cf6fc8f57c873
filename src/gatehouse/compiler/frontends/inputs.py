"""Keys of inputs that the controller sets for all front ends."""

from __future__ import annotations

from gatehouse.incremental.query import Key


def replicas(gateway: Key) -> Key:
    """Return the key of the sorted names of a Gateway's connected data planes."""
    return ("Replicas", gateway[1], gateway[2])


def passed(moment: int) -> Key:
    """Return the key of whether a point in time (Unix seconds) has passed; None: not known yet."""
    return ("Passed", str(moment), "")
