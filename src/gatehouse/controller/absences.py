"""Gateways whose last instance disconnected, and may connect again. No I/O.

Agents connect again after a failure of the network, and when another controller starts. Meanwhile
the proxies serve, so that `Programmed` stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from gatehouse.controller.instance_events import RETURN_SECONDS
from gatehouse.incremental.query import Key


class Absences:
    """The Gateways without instances that had some, or had some with an earlier controller."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds that never decrease."""
        self._clock = clock
        self._ends: dict[Key, float] = {}
        """Time at which a Gateway without instances is not awaited any longer."""
        self._awaited: set[Key] = set()

    def is_awaited(self, gateway: Key, *, connected: bool, programmed: bool) -> bool:
        """Return whether the state of a Gateway stays because its instances may connect again.

        ``programmed``: whether there is a state that may stay.
        """
        if connected or not programmed:
            self.forget(gateway)
            return False
        now = self._clock()
        if now < self._ends.setdefault(gateway, now + RETURN_SECONDS):
            self._awaited.add(gateway)
            return True
        self._awaited.discard(gateway)
        return False

    def forget(self, gateway: Key) -> None:
        """Forget a Gateway that has instances, or is not served."""
        self._ends.pop(gateway, None)
        self._awaited.discard(gateway)

    def ended(self) -> Collection[Key]:
        """Return the Gateways whose time is over since :meth:`is_awaited` returned True."""
        now = self._clock()
        return [gateway for gateway in self._awaited if self._ends[gateway] <= now]

    def next_wakeups(self) -> list[float]:
        """Return the seconds until a time is over; empty if no Gateway is awaited."""
        ends = [self._ends[gateway] for gateway in self._awaited]
        return [max(0.0, min(ends) - self._clock())] if ends else []
