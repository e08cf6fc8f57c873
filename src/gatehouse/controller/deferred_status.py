"""Statuses held back until data planes have confirmed the configuration. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from gatehouse.compiler.frontends import combined
from gatehouse.incremental.query import Key

MAX_DEFER_SECONDS = 10.0
"""Maximum time in seconds a status waits for data planes that neither confirm nor reject."""

Served = Callable[[Key], int | None]
"""Returns the number of the newest publication of a Gateway that need not be waited for. None if
this controller does not manage the Gateway; then nothing of it is waited for."""


class _Deferred(msgspec.Struct, frozen=True):
    status: combined.Status
    awaited: Mapping[Key, int]
    """Publication of each Gateway that must be served first."""
    release: float
    """Time at which the status is released in any case, on the clock of the caller."""


class DeferredStatuses:
    """The deferred statuses of each object, in the order of its changes.

    A status is released when its configuration is served, whatever was published after it.
    Otherwise endpoints that change all the time would defer every status.
    """

    def __init__(self) -> None:
        self._deferred: dict[Key, deque[_Deferred]] = {}
        self._awaiting: dict[Key, dict[Key, None]] = {}
        """By Gateway, the objects with a status that awaits it, in order."""
        self._new: dict[Key, None] = {}
        """Objects with a status deferred since the last :meth:`release_ready`."""
        self._releases: deque[tuple[float, Key]] = deque()
        """Latest release times, ascending. Entries of released statuses may remain."""

    def defer(
        self, key: Key, status: combined.Status, awaited: Mapping[Key, int], now: float
    ) -> None:
        """Defer a status until the publications in ``awaited`` are served.

        ``now`` must never be less than in earlier calls.
        """
        self._deferred.setdefault(key, deque()).append(
            _Deferred(status, awaited, now + MAX_DEFER_SECONDS)
        )
        self._releases.append((now + MAX_DEFER_SECONDS, key))
        self._new[key] = None
        for gateway in awaited:
            self._awaiting.setdefault(gateway, {})[key] = None

    def discard(self, key: Key) -> None:
        """Drop the deferred statuses of an object."""
        queue = self._deferred.get(key, deque())
        while queue:
            self._stop_awaiting(key, queue.popleft())
        self._deferred.pop(key, None)
        self._new.pop(key, None)

    def release_ready(
        self, changed_gateways: Iterable[Key], served: Served, now: float
    ) -> Iterator[tuple[Key, combined.Status, Mapping[Key, int]]]:
        """Remove all statuses that need not wait longer, and yield the newest of each object.

        Yields the object, the status and the publications that it awaited.
        ``changed_gateways``: the Gateways for which ``served`` may return another number than in
        the last call.
        """
        for key in self._candidates(changed_gateways, now):
            queue, newest = self._deferred[key], None
            while queue and _is_ready(queue[0], served, now):
                newest = queue.popleft()
                self._stop_awaiting(key, newest)
            if not queue:
                del self._deferred[key]
            if newest is not None:
                yield key, newest.status, newest.awaited

    def _candidates(self, changed_gateways: Iterable[Key], now: float) -> list[Key]:
        candidates: dict[Key, None] = {}
        while self._releases and self._releases[0][0] <= now:
            candidates[self._releases.popleft()[1]] = None
        for gateway in changed_gateways:
            candidates |= self._awaiting.get(gateway, {})
        candidates |= self._new
        self._new = {}
        return [key for key in candidates if key in self._deferred]

    def _stop_awaiting(self, key: Key, removed: _Deferred) -> None:
        """Remove Gateways awaited only by ``removed`` from the index of the object."""
        for gateway in removed.awaited:
            if not any(gateway in other.awaited for other in self._deferred.get(key, ())):
                awaiting = self._awaiting[gateway]
                awaiting.pop(key, None)
                if not awaiting:
                    del self._awaiting[gateway]

    def next_release(self) -> float | None:
        """Return the earliest time at which a status is released in any case, or None."""
        while self._releases:
            release, key = self._releases[0]
            queue = self._deferred.get(key)
            if queue and queue[0].release <= release:
                return release
            self._releases.popleft()
        return None


def _is_ready(deferred: _Deferred, served: Served, now: float) -> bool:
    return now >= deferred.release or all(
        _has_reached(served(gateway), number) for gateway, number in deferred.awaited.items()
    )


def _has_reached(served: int | None, number: int) -> bool:
    return served is None or served >= number
