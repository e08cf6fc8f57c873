"""Statuses that wait until the changes they speak of are in traffic. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from gatehouse.frontends import joined
from gatehouse.query import Key

LONGEST = 10.0
"""Seconds a status waits for data planes that neither confirm nor refuse."""


class _Held(msgspec.Struct, frozen=True):
    status: joined.Status
    awaited: Mapping[Key, int]
    release: float


class Holding:
    """The statuses of each object in the order of its changes.

    One is released when what it speaks of is served, however much was published after it: else
    endpoints that change all the time would leave every status waiting.
    """

    def __init__(self) -> None:
        self._held: dict[Key, deque[_Held]] = {}

    def hold(self, key: Key, status: joined.Status, awaited: Mapping[Key, int], now: float) -> None:
        """Hold a status; ``awaited``: the publication of each Gateway that must be served first."""
        self._held.setdefault(key, deque()).append(_Held(status, awaited, now + LONGEST))

    def forget(self, key: Key) -> None:
        """Hold nothing of an object any more."""
        self._held.pop(key, None)

    def released(
        self, served: Mapping[Key, int], now: float
    ) -> Iterator[tuple[Key, joined.Status]]:
        """Give, and hold no longer, the newest status of each object that need not wait.

        ``served``: the newest publication of each Gateway that need not be waited for.
        """
        for key, held in list(self._held.items()):
            found = None
            while held and _may_go(held[0], served, now):
                found = held.popleft().status
            if not held:
                del self._held[key]
            if found is not None:
                yield key, found

    def next_release(self) -> float | None:
        """Give the time at which a status goes in any case, the earliest of all."""
        return min((held[0].release for held in self._held.values()), default=None)


def _may_go(held: _Held, served: Mapping[Key, int], now: float) -> bool:
    return now >= held.release or all(
        served.get(gateway, number) >= number for gateway, number in held.awaited.items()
    )
