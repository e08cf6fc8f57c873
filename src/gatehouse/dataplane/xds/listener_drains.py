"""Filter chains that an Envoy drains: it keeps each replaced one for its drain timeout.

A replaced chain takes some 0.4 MB of memory, with or without connections. A listener of which other
chains change leaves an old copy behind, too. So changes of listeners wait once many chains drain.
Later changes join them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envoy.config.listener.v3 import listener_pb2
from google.protobuf.message import DecodeError

from gatehouse.dataplane.xds.resources import (
    LISTENER_TYPE_URL,
    ResourceKey,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.subscription import Subscription

MAX_FREE_DRAINS = 200
"""Number of draining chains up to which a change does not wait."""

_MAX_LATER_DRAINS = 400
"""Number of chains that may be replaced beyond that within one drain timeout."""

_CHAINS_OF_A_COPY = 20
"""Number of chains in an old copy of a listener that take as much memory as a replaced chain."""


class ListenerDrains:
    """Estimate of the draining chains of one Envoy. `drain_seconds`: its drain timeout.

    It reads no clock: the caller calls :meth:`release` every :attr:`interval_seconds` while
    :attr:`number` is not zero.
    """

    def __init__(self, drain_seconds: int) -> None:
        self.interval_seconds = drain_seconds / _MAX_LATER_DRAINS
        self.number = 0
        self.releases = 0
        """Number of calls of :meth:`release`."""

    @property
    def full(self) -> bool:
        """Return whether a change of a listener must wait."""
        return self.number >= MAX_FREE_DRAINS

    def start(
        self,
        present: ResourceSet,
        newest: ResourceSet,
        changed: Iterable[ResourceKey] | None,
        subscriptions: Mapping[str, Subscription],
    ) -> bool:
        """Record that Envoy starts to drain what differs in the newest set. Return False if that
        must wait.

        ``changed``: keys that differ; None for all.
        """
        listeners = subscriptions.get(LISTENER_TYPE_URL)
        versions = listeners.client_versions if listeners is not None else {}
        keys = [(LISTENER_TYPE_URL, name) for name in versions] if changed is None else changed
        number = sum(
            drained_chains(present.get(*key), newest.get(*key))
            for key in keys
            if key[0] == LISTENER_TYPE_URL and versions.get(key[1])
        )
        if number and self.full:
            return False
        self.number += number
        return True

    def release(self) -> None:
        """Record that an interval has passed."""
        self.releases += 1
        self.number -= 1


def drained_chains(old: XdsResource | None, new: XdsResource | None) -> int:
    """Return how many chains Envoy drains to get from one listener to another, as an estimate.

    A copy with many chains counts as several chains.
    """
    if old is None or (new is not None and old.version == new.version):
        return 0
    try:
        before = listener_pb2.Listener.FromString(old.body)
        after = listener_pb2.Listener.FromString(new.body if new is not None else b"")
    except DecodeError:
        return 1
    present = {chain.name: chain for chain in after.filter_chains}
    replaced = sum(present.get(chain.name) != chain for chain in before.filter_chains)
    number = len(before.filter_chains)
    del before.filter_chains[:], after.filter_chains[:]
    # Envoy replaces chains one by one only if nothing else of the listener differs.
    drained = replaced + number // _CHAINS_OF_A_COPY if before == after else number
    return max(1, drained)
