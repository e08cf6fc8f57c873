"""Limits on the rate of the calls and messages of one instance. No I/O.

An agent calls when something has changed: its NGINX, its files, its connection. Files of its
Gateway that it fetches and messages inside a stream have a limit of their own, because a new
configuration may have thousands of files.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatehouse.dataplane.agent_limits import (
    CALL_BYTES,
    MAX_CALL_BURST,
    MAX_CALLS_PER_SECOND,
    MAX_REQUEST_BURST,
    MAX_REQUESTS_PER_SECOND,
    MessageRefused,
)
from gatehouse.transports.agents.token_auth import Identity


class CallLimit(msgspec.Struct, frozen=True):
    """Limit of one instance."""

    what: str
    """Noun in the plural."""
    per_second: int
    burst: int
    """Number at once."""

    @property
    def reason(self) -> str:
        """Reason of the end of a call that exceeds the limit."""
        return f"more than {self.per_second} {self.what} per second"


CALL_LIMIT = CallLimit("calls", MAX_CALLS_PER_SECOND, MAX_CALL_BURST)
"""Limit of calls that report something or open a stream."""

REQUEST_LIMIT = CallLimit("messages or files", MAX_REQUESTS_PER_SECOND, MAX_REQUEST_BURST)
"""Limit of messages inside streams and of fetched files."""


class _Use(msgspec.Struct):
    """Use of the rate by one instance."""

    until: float
    """Time until which its calls use the rate up."""
    refused: bool = False
    burst: float = 0.0
    """Largest burst that it was granted meanwhile."""


class CallRates:
    """Counts the calls of each instance."""

    def __init__(self, clock: Callable[[], float], limit: CallLimit) -> None:
        self._clock, self._limit = clock, limit
        self._uses: dict[tuple[str, str], _Use] = {}
        """Use by Gateway and instance, in the order of their last calls."""

    def count(self, identity: Identity, size: int = 0, more: float = 0.0) -> None:
        """Count a call with a message of ``size`` bytes. Raises MessageRefused, which is logged
        once until the instance pauses.

        ``more``: calls that the instance may make at once besides the limit's burst.
        """
        key, now = (identity.gateway, identity.instance), self._clock()
        use = self._uses.pop(key, None)
        if use is None or use.until <= now:
            use = _Use(now)
        while self._uses and self._uses[oldest := next(iter(self._uses))].until <= now:
            del self._uses[oldest]
        self._uses[key] = use
        use.burst = max(use.burst, self._limit.burst + more)
        if use.until - now > use.burst / self._limit.per_second:
            first, use.refused = not use.refused, True
            raise MessageRefused(self._limit.reason, logged=first)
        use.until += (1 + size / CALL_BYTES) / self._limit.per_second
