"""Timer that sets an event, kept from one wait to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


class Alarm:
    """Sets an event after some time, or earlier.

    A deadline may be far away. A new timer for each wait would cost more than a wake-up too many.
    """

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        """Time of the timer on the clock of the event loop. A handle of uvloop has none if the
        delay was below a millisecond."""

    def set(self, delays: Sequence[float]) -> None:
        """Set the event after the least of some delays in seconds, or earlier.

        Needs a running event loop. Does nothing without delays.
        """
        if not delays:
            return
        loop, seconds = asyncio.get_running_loop(), min(delays)
        due = loop.time() + seconds
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due, self._timer = due, loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._event.set()
