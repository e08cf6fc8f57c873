"""Keys of inputs that the controller sets for all front ends."""

from __future__ import annotations

from gatehouse.incremental.query import Key


def replicas_key(gateway: Key) -> Key:
    """Return the key of the sorted names of a Gateway's connected data planes."""
    return ("Replicas", gateway[1], gateway[2])


def limit_use_key(gateway: Key, cluster: str) -> Key:
    """Return the key of the use that a Gateway's data planes make of an UpstreamCluster's limits.

    The value has the requests in flight that a data plane needs, by its name and by schema. A data
    plane that has not reported its use is missing.
    """
    return ("LimitUse", gateway[1], gateway[2], cluster)


def sharing_key(gateway: Key) -> Key:
    """Return the key of the names of a Gateway's data planes that serve shares of limits."""
    return ("LimitSharing", gateway[1], gateway[2])


def record_key(key: Key) -> Key:
    """Return the key of the record of an object: decisions of earlier passes that stay in effect.

    The object's status stores the record across restarts.
    """
    return ("Recorded", *key)


def deadline_key(deadline: int) -> Key:
    """Return the key of whether a deadline in Unix seconds has passed; None: not known yet."""
    return ("Passed", str(deadline), "")
