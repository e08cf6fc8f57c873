"""One client of aggregated discovery, as its server sees it. Pure.

Requests come in (:meth:`Conversation.receive`); what is to be said next is asked for when there is
room to say it (:meth:`Conversation.next`), so that a slow client is told the newest and holds up
nobody. There is one response in flight for each type, and one transition at a time, from what the
client has to a publication:

1. secrets, clusters and endpoints, side by side: Envoy accepts clusters when they are warm, and
   asks for their endpoints and secrets before that; descriptions of companions, if there are any,
   which an agent accepts when these listen;
2. once these are accepted, listeners and routes;
3. once these are, what goes is taken away, its users first.

What is published meanwhile is the next transition, so that no stream of changes keeps another
waiting; except endpoints, which need no order and are always told as they are now, and secrets that
are asked for and come late (a relay hears of them after it told of their clusters, which get warm,
and are accepted, with them only).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

import msgspec

from gatehouse.dataplane.xds.nacks import Nack, RejectedResource
from gatehouse.dataplane.xds.resources import (
    ADD_ORDER,
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    REMOVE_ORDER,
    SECRET,
    SIDECAR_CONFIG,
    Key,
    Resource,
    ResourceSet,
)
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache
from gatehouse.dataplane.xds.subscription import Subscription

TYPE_ORDER = {type_url: rank for rank, type_url in enumerate(ADD_ORDER)}

WILDCARDS = frozenset({CLUSTER, LISTENER})
"""Types that every Envoy asks for as a whole, sooner or later."""

SUBSCRIBE_GRACE_SECONDS = 1.0
"""How long an Envoy may take to ask for what it was given reason to ask for, such as the routes of
a new listener. It asks as it accepts; who takes longer does not want it."""

CLUSTER_WARMING_SECONDS = 20.0
"""How long new clusters may hold up all else. Envoy waits 15 s for endpoints and secrets that do
not come; health checks may take as long as they like."""


class Awaited(msgspec.Struct, frozen=True):
    """What a client is given time for."""

    what: str
    """Different for each occasion."""
    seconds: float


class Request(msgspec.Struct, frozen=True):
    """What a client says of one type."""

    type_url: str
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}
    """What it has from an earlier stream, by name; only in its first request of the type."""
    nonce: str = ""
    """The response that this answers; empty: none."""
    refusal: Nack | None = None
    """None: it is accepted."""


class Response(msgspec.Struct, frozen=True):
    """What is said of one type."""

    type_url: str
    nonce: str
    resources: tuple[Resource, ...] = ()
    removed: tuple[str, ...] = ()


class AdsSession:
    """The state of one stream; see the module's docstring."""

    def __init__(self, publication: SnapshotCache) -> None:
        self.confirmed = ""
        """Version of the newest publication that the client has, less what it refused; empty:
        none yet."""
        self.target = ResourceSet()
        """What the client is being brought to."""
        self._publication = publication
        self._number = -1
        self._nonce = 0
        self._types: dict[str, Subscription] = {}
        self._followed = -1
        """The publication whose endpoints are told; it may be newer than the target."""
        self._begun = 0
        """The last response before the present transition."""
        self._owed: set[str] = set()
        """Endpoints that changed in the present transition and were not accepted since."""
        self._awaited: dict[str, set[str]] = {}
        """By type, what the client has been given reason to ask for and has not asked for yet."""
        self._overdue = ""
        """The response with clusters that do not get warm."""

    @property
    def target_version(self) -> str:
        """Version of the publication that the client is being told, or was; empty: none yet."""
        return self.target.version if self._number >= 0 else ""

    @property
    def deadline(self) -> Awaited | None:
        """What the client is given time for; None: it need not be watched."""
        clusters = self._types.get(CLUSTER)
        if clusters is not None and clusters.in_flight is not None:
            if clusters.in_flight.nonce == self._overdue:
                return None
            return Awaited(clusters.in_flight.nonce, CLUSTER_WARMING_SECONDS)
        if any(self._awaited.values()) and not self._busy():
            return Awaited("asking", SUBSCRIBE_GRACE_SECONDS)
        return None

    def on_deadline(self) -> None:
        """Wait no longer for what is awaited."""
        clusters = self._types.get(CLUSTER)
        if clusters is not None and clusters.in_flight is not None:
            self._overdue = clusters.in_flight.nonce
        else:
            self._awaited.clear()

    @property
    def is_idle(self) -> bool:
        """Whether the client has the newest publication, less what it refused."""
        return self._number == self._publication.number and self._complete()

    def unsubscribed(self) -> list[Key]:
        """Give what the client has not asked for, though it was given reason to."""
        return [(type_url, name) for type_url, names in self._awaited.items() for name in names]

    def refused(self) -> Iterator[RejectedResource]:
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
            accepted = state.on_response(request.nonce, request.refusal)
            if request.type_url == ENDPOINTS and int(request.nonce) > self._begun:
                self._owed -= accepted
        before = state.wildcard
        state.subscribe(request.subscribe, request.versions)
        state.unsubscribe(request.unsubscribe)
        if state.wildcard and not before:
            state.mark(self.target.by_type.get(request.type_url, ()))
        if awaited := self._awaited.get(request.type_url):
            if request.type_url == ENDPOINTS:
                # Of the present transition, like those that were asked for before it began.
                self._owed |= awaited.intersection(request.subscribe)
            awaited.difference_update(request.subscribe)
            if state.wildcard:
                awaited.clear()

    def next(self) -> Response | None:
        """Give what is to be said now; None: nothing, until something comes in or is published."""
        if not self._publication.open:
            return None
        self._follow()
        response = self._say()
        while response is None and not self._busy():
            if self._complete():
                self.confirmed = self.target_version
            if not self._advance():
                return None
            response = self._say()
        return response

    def _busy(self) -> bool:
        """Whether an answer is awaited without which the transition cannot go on."""
        flying = (each for each in self._types.values() if each.in_flight is not None)
        return any(
            each.type_url != ENDPOINTS and each.in_flight.nonce != self._overdue
            for each in flying
            if each.in_flight is not None
        )

    def _complete(self) -> bool:
        if self._number < 0 or any(self._awaited.values()):
            return False
        for type_url, state in self._types.items():
            if type_url == ENDPOINTS:
                self._owed = {name for name in self._owed if not state.settled(name)}
            elif not state.idle:
                return False
        if self._owed:
            return False
        wanted = WILDCARDS.intersection(self.target.by_type)
        return all(each in self._types or not self.target.by_type[each] for each in wanted)

    def _follow(self) -> None:
        """Have endpoints that changed since looked at, whatever the transition is at."""
        newest, state = self._publication, self._types.get(ENDPOINTS)
        if newest.number == self._followed:
            return
        changed = newest.changes_since(self._followed) if self._followed >= 0 else None
        self._followed = newest.number
        if (secrets := self._types.get(SECRET)) is not None:
            known = self.target.by_type.get(SECRET, {})
            secrets.mark(name for name in secrets.names if name not in known)
        if state is not None and changed is not None:
            state.mark(
                name for type_url, name in changed if type_url == ENDPOINTS and state.matches(name)
            )
        elif state is not None:
            state.mark(state.names)

    def _advance(self) -> bool:
        """Turn to the newest publication; returns False if there is none that is newer."""
        newest = self._publication
        if newest.number == self._number:
            return False
        changed = newest.changes_since(self._number) if self._number >= 0 else None
        self.target, self._number, self._begun = newest.current, newest.number, self._nonce
        keys = self._everything() if changed is None else changed
        for type_url, name in keys:
            state = self._types.get(type_url)
            if state is not None and state.matches(name):
                state.mark((name,))
                if type_url == ENDPOINTS:
                    self._owed.add(name)
            elif self.target.get(type_url, name) is None:
                self._awaited.get(type_url, set()).discard(name)
            elif type_url not in WILDCARDS:
                self._awaited.setdefault(type_url, set()).add(name)
        return True

    def _everything(self) -> Iterable[Key]:
        for type_url in dict.fromkeys((*self.target.by_type, *self._types)):
            state = self._types.get(type_url)
            named = self.target.by_type.get(type_url, {})
            had = () if state is None else (*state.known, *state.names)
            for name in dict.fromkeys((*named, *had)):
                yield type_url, name

    def _say(self) -> Response | None:
        if self._number < 0:
            return None
        for type_url in sorted(self._types, key=_rank):
            if _rank(type_url) >= TYPE_ORDER[LISTENER] and self._unready():
                return None
            state = self._types[type_url]
            if state.in_flight is None:
                resources, removed = state.next_resources(self._lookup(type_url), self._publication)
                if resources or removed or self._owes_greeting(state):
                    return self._send(state, resources, removed)
        if self._busy() or self._unready():
            return None
        for type_url in sorted(self._types, key=_leaving_rank):
            state = self._types[type_url]
            if state.in_flight is None and (gone := state.next_removals()):
                return self._send(state, (), gone)
        return None

    def _unready(self) -> bool:
        """Whether something that routes may need is not there yet: they would be answered 503."""
        for type_url in (SIDECAR_CONFIG, SECRET, CLUSTER):
            state = self._types.get(type_url)
            if state is not None and state.in_flight is not None:
                return state.in_flight.nonce != self._overdue
        return CLUSTER in self._types and bool(self._awaited.get(ENDPOINTS))

    def _lookup(self, type_url: str) -> Callable[[str], Resource | None]:
        named = self.target.by_type.get(type_url, {})
        newest = self._publication.current.by_type.get(type_url, {})
        if type_url == ENDPOINTS:
            return lambda name: newest.get(name) or named.get(name)
        if type_url == SECRET:
            return lambda name: named.get(name) or newest.get(name)
        return named.get

    def _owes_greeting(self, state: Subscription) -> bool:
        """Whether the client waits to hear that there is nothing."""
        if self._number != self._publication.number:
            # There may be something by now.
            return False
        whole = state.wildcard and self._publication.is_absent(state.type_url, WILDCARD)
        return whole and not state.sent_once

    def _send(
        self, state: Subscription, resources: tuple[Resource, ...], removed: tuple[str, ...]
    ) -> Response:
        self._nonce += 1
        response = Response(state.type_url, str(self._nonce), resources, removed)
        endpoints = self._types.get(ENDPOINTS)
        if state.type_url == CLUSTER and endpoints is not None:
            # A cluster that changes is warmed like a new one, but its endpoints are not asked for
            # again: Envoy would wait 15 s for them.
            changed = (each.name for each in resources if state.known.get(each.name))
            endpoints.resend(changed)
        state.sent(response.nonce, resources, removed)
        return response


def _rank(type_url: str) -> int:
    return TYPE_ORDER.get(type_url, -1)


def _leaving_rank(type_url: str) -> int:
    return REMOVE_ORDER.index(type_url) if type_url in TYPE_ORDER else len(REMOVE_ORDER)
