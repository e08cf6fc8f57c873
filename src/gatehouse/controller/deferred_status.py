"""Statuses that wait until the changes they speak of are in traffic. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from gatehouse.compiler.frontends import combined
from gatehouse.incremental.query import Key

MAX_DEFER_SECONDS = 10.0
"""Seconds a status waits for data planes that neither confirm nor refuse."""

Served = Callable[[Key], int | None]
"""Gives the newest publication of a Gateway that need not be waited for; None: it is no Gateway of
ours any more, and nothing of it is waited for."""


class _Held(msgspec.Struct, frozen=True):
    status: combined.Status
    awaited: Mapping[Key, int]
    release: float


class DeferredStatuses:
    """The statuses of each object in the order of its changes.

    One is released when what it speaks of is served, however much was published after it: else
    endpoints that change all the time would leave every status waiting.
    """

    def __init__(self) -> None:
        self._held: dict[Key, deque[_Held]] = {}
        self._awaiting: dict[Key, dict[Key, None]] = {}
        """By Gateway, the objects with a status that awaits it."""
        self._new: dict[Key, None] = {}
        """Objects of which a status came since the last look."""
        self._releases: deque[tuple[float, Key]] = deque()
        """When the statuses go in any case; some of them may be gone already."""

    def defer(
        self, key: Key, status: combined.Status, awaited: Mapping[Key, int], now: float
    ) -> None:
        """Hold a status; ``awaited``: the publication of each Gateway that must be served first.

        ``now`` is never less than before.
        """
        self._held.setdefault(key, deque()).append(_Held(status, awaited, now + MAX_DEFER_SECONDS))
        self._releases.append((now + MAX_DEFER_SECONDS, key))
        self._new[key] = None
        for gateway in awaited:
            self._awaiting.setdefault(gateway, {})[key] = None

    def discard(self, key: Key) -> None:
        """Hold nothing of an object any more."""
        held = self._held.get(key, deque())
        while held:
            self._let_go(key, held.popleft())
        self._held.pop(key, None)
        self._new.pop(key, None)

    def release_ready(
        self, news: Iterable[Key], served: Served, now: float
    ) -> Iterator[tuple[Key, combined.Status]]:
        """Give, and hold no longer, the newest status of each object that need not wait.

        ``news``: the Gateways for which ``served`` may give something else than at the last look.
        """
        for key in self._candidates(news, now):
            held, found = self._held[key], None
            while held and _may_go(held[0], served, now):
                gone = held.popleft()
                found = gone.status
                self._let_go(key, gone)
            if not held:
                del self._held[key]
            if found is not None:
                yield key, found

    def _candidates(self, news: Iterable[Key], now: float) -> list[Key]:
        found: dict[Key, None] = {}
        while self._releases and self._releases[0][0] <= now:
            found[self._releases.popleft()[1]] = None
        for gateway in news:
            found |= self._awaiting.get(gateway, {})
        found |= self._new
        self._new = {}
        return [key for key in found if key in self._held]

    def _let_go(self, key: Key, gone: _Held) -> None:
        """Forget whom a status awaited, as far as no other of the object awaits them."""
        for gateway in gone.awaited:
            if not any(gateway in each.awaited for each in self._held.get(key, ())):
                awaiting = self._awaiting[gateway]
                awaiting.pop(key, None)
                if not awaiting:
                    del self._awaiting[gateway]

    def next_release(self) -> float | None:
        """Give the time at which a status goes in any case, the earliest of all."""
        while self._releases:
            release, key = self._releases[0]
            held = self._held.get(key)
            if held and held[0].release <= release:
                return release
            self._releases.popleft()
        return None


def _may_go(held: _Held, served: Served, now: float) -> bool:
    return now >= held.release or all(
        _reached(served(gateway), number) for gateway, number in held.awaited.items()
    )


def _reached(served: int | None, number: int) -> bool:
    return served is None or served >= number
