"""Limit on the rate of the reports of one instance. No I/O.

An agent calls when something has changed: its NGINX, its files, its connection. Files of its
Gateway that it fetches are not counted, because a new configuration may have thousands.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatehouse.dataplane.agent_limits import (
    CALL_BYTES,
    MAX_CALL_BURST,
    MAX_CALLS_PER_SECOND,
)
from gatehouse.transports.agents.token_auth import Identity

TOO_MANY_CALLS = f"more than {MAX_CALLS_PER_SECOND} calls per second"


class TooManyCalls(Exception):
    """A call that exceeds the limit."""

    def __init__(self, *, first: bool) -> None:
        super().__init__(TOO_MANY_CALLS)
        self.first = first
        """False if one of the same instance was refused since its last pause."""


class _Use(msgspec.Struct):
    """Use of the rate by one instance."""

    until: float
    """Time until which its calls use the rate up."""
    refused: bool = False


class CallRates:
    """Counts the calls of each instance."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._uses: dict[tuple[str, str], _Use] = {}
        """Use by Gateway and instance, in the order of their last calls."""

    def count(self, identity: Identity, size: int = 0) -> None:
        """Count a call with a message of ``size`` bytes. Raises TooManyCalls."""
        key, now = (identity.gateway, identity.instance), self._clock()
        use = self._uses.pop(key, None)
        if use is None or use.until <= now:
            use = _Use(now)
        while self._uses and self._uses[oldest := next(iter(self._uses))].until <= now:
            del self._uses[oldest]
        self._uses[key] = use
        if use.until - now > MAX_CALL_BURST / MAX_CALLS_PER_SECOND:
            first, use.refused = not use.refused, True
            raise TooManyCalls(first=first)
        use.until += (1 + size / CALL_BYTES) / MAX_CALLS_PER_SECOND
