"""One client of aggregated discovery, as its server sees it. Pure.

Requests come in (:meth:`Conversation.receive`); what is to be said next is asked for when there is
room to say it (:meth:`Conversation.next`), so that a slow client is told the newest and holds up
nobody. There is one response in flight for each type, and one transition at a time, from what the
client has to a publication: what is new in the order of :data:`~gatehouse.xds.resources.ORDER`,
each type after those before it are accepted, then what goes, its users first. What is published
meanwhile is the next transition, so that no stream of changes of one type keeps another waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import msgspec

from gatehouse.xds.publication import EVERYTHING, Publication
from gatehouse.xds.refusals import Refusal, Refused
from gatehouse.xds.resources import (
    CLUSTER,
    ENDPOINTS,
    LEAVING,
    LISTENER,
    ORDER,
    Key,
    Resource,
    Resources,
)
from gatehouse.xds.subscription import Subscription

RANKS = {type_url: rank for rank, type_url in enumerate(ORDER)}

WILDCARDS = frozenset({CLUSTER, LISTENER})
"""Types that every Envoy asks for as a whole, sooner or later."""


class Request(msgspec.Struct, frozen=True):
    """What a client says of one type."""

    type_url: str
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}
    """What it has from an earlier stream, by name; only in its first request of the type."""
    nonce: str = ""
    """The response that this answers; empty: none."""
    refusal: Refusal | None = None
    """None: it is accepted."""


class Response(msgspec.Struct, frozen=True):
    """What is said of one type."""

    type_url: str
    nonce: str
    resources: tuple[Resource, ...] = ()
    removed: tuple[str, ...] = ()


class Conversation:
    """The state of one stream; see the module's docstring."""

    def __init__(self, publication: Publication) -> None:
        self.confirmed = ""
        """Version of the newest publication that the client has, less what it refused; empty:
        none yet."""
        self.target = Resources()
        """What the client is being brought to."""
        self._publication = publication
        self._number = -1
        self._nonce = 0
        self._types: dict[str, Subscription] = {}
        self._awaited: dict[str, set[str]] = {}
        """By type, what the client has been given reason to ask for and has not asked for yet."""

    @property
    def told(self) -> str:
        """Version of the publication that the client is being told, or was; empty: none yet."""
        return self.target.version if self._number >= 0 else ""

    @property
    def waiting(self) -> bool:
        """Whether all is said but what the client has not asked for, which it may be about to."""
        return not self._in_flight and any(self._awaited.values())

    def impatient(self) -> None:
        """Wait no longer for the client to ask for more."""
        self._awaited.clear()

    def refused(self) -> Iterator[Refused]:
        """Give what the client does not take of what it is to have."""
        return chain.from_iterable(each.refused.values() for each in self._types.values())

    def subscription(self, type_url: str) -> Subscription | None:
        """Give what the client asked for of a type, and has; None: it asked for nothing."""
        return self._types.get(type_url)

    def receive(self, request: Request) -> None:
        """Take in one request."""
        state = self._types.get(request.type_url)
        if state is None:
            state = self._types[request.type_url] = Subscription(request.type_url)
        if request.nonce:
            state.answered(request.nonce, request.refusal)
        before = state.wildcard
        state.subscribe(request.subscribe, request.versions)
        state.unsubscribe(request.unsubscribe)
        if state.wildcard and not before:
            state.mark(self.target.by_type.get(request.type_url, ()))
        if awaited := self._awaited.get(request.type_url):
            awaited.difference_update(request.subscribe)
            if state.wildcard:
                awaited.clear()

    def next(self) -> Response | None:
        """Give what is to be said now; None: nothing, until something comes in or is published."""
        if not self._publication.open:
            return None
        response = self._say()
        while response is None and not self._in_flight:
            if not self._unasked():
                self.confirmed = self.told
            if not self._advance():
                return None
            response = self._say()
        return response

    @property
    def _in_flight(self) -> bool:
        return any(each.in_flight is not None for each in self._types.values())

    def _unasked(self) -> bool:
        if any(self._awaited.values()):
            return True
        wanted = WILDCARDS.intersection(self.target.by_type)
        return any(self.target.by_type[each] and each not in self._types for each in wanted)

    def _advance(self) -> bool:
        """Turn to the newest publication; returns False if there is none that is newer."""
        newest = self._publication
        if newest.number == self._number:
            return False
        changed = newest.since(self._number) if self._number >= 0 else None
        self.target, self._number = newest.current, newest.number
        keys = self._everything() if changed is None else changed
        for type_url, name in keys:
            state = self._types.get(type_url)
            if state is not None and state.covers(name):
                state.mark((name,))
            elif self.target.get(type_url, name) is None:
                self._awaited.get(type_url, set()).discard(name)
            elif type_url not in WILDCARDS:
                self._awaited.setdefault(type_url, set()).add(name)
        return True

    def _everything(self) -> Iterable[Key]:
        for type_url in {*self.target.by_type, *self._types}:
            state = self._types.get(type_url)
            names = set(self.target.by_type.get(type_url, ()))
            if state is not None:
                names |= state.known.keys() | state.names
            for name in names:
                yield type_url, name

    def _say(self) -> Response | None:
        if self._number < 0:
            return None
        unready = CLUSTER in self._types and bool(self._awaited.get(ENDPOINTS))
        for type_url in sorted(self._types, key=_rank):
            if unready and _rank(type_url) >= RANKS[LISTENER]:
                # A route to a cluster whose endpoints are yet to come would be answered 503.
                return None
            state = self._types[type_url]
            if state.in_flight is None:
                resources, removed = state.news(self.target, self._publication)
                if resources or removed or self._owed(state):
                    return self._send(state, resources, removed)
            if state.in_flight is not None and type_url in RANKS:
                return None
        if self._in_flight:
            return None
        for type_url in sorted(self._types, key=_leaving_rank):
            state = self._types[type_url]
            if gone := state.farewell():
                return self._send(state, (), gone)
        return None

    def _owed(self, state: Subscription) -> bool:
        """Whether the client waits to hear that there is nothing."""
        whole = state.wildcard and self._publication.knows(state.type_url, EVERYTHING)
        return whole and not state.greeted

    def _send(
        self, state: Subscription, resources: tuple[Resource, ...], removed: tuple[str, ...]
    ) -> Response:
        self._nonce += 1
        response = Response(state.type_url, str(self._nonce), resources, removed)
        state.sent(response.nonce, resources, removed)
        return response


def _rank(type_url: str) -> int:
    return RANKS.get(type_url, -1)


def _leaving_rank(type_url: str) -> int:
    return LEAVING.index(type_url) if type_url in RANKS else len(LEAVING)
