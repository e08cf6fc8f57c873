"""What one client asked for of one type, what it has of it, and what it is yet to be told. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set

import msgspec

from gatehouse.dataplane.xds.nacks import Nack, RejectedResource, reasons_in, refused
from gatehouse.dataplane.xds.resources import ENDPOINTS, ROUTES, SECRET, VIRTUAL_HOST, Resource
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache

RESPONSE_BYTES = 1 << 20
"""Above this a response is divided; gRPC's default limit is four times as much."""

NON_WILDCARD = frozenset({ENDPOINTS, SECRET, ROUTES, VIRTUAL_HOST})
"""Types of which a first request without names asks for nothing rather than for everything."""

ABSENT = ""
"""In place of a version: the client was told that there is no such resource."""

UNKNOWN_VERSION = "?"
"""In place of a version, by a client: it may have something of that name, and is to hear of it."""


Lookup = Callable[[str], Resource | None]
"""Gives the resource of a name, if there is one."""


class InFlight(msgspec.Struct, frozen=True):
    """A response that is not answered yet."""

    nonce: str
    resources: tuple[Resource, ...]
    removed: tuple[str, ...]


class Subscription:
    """The state of one type on one stream."""

    def __init__(self, type_url: str) -> None:
        self.type_url = type_url
        self.wildcard = False
        self.names: set[str] = set()
        self.known: dict[str, str] = {}
        """What the client has: versions by name."""
        self.refused: dict[str, RejectedResource] = {}
        self.in_flight: InFlight | None = None
        self.sent_once = False
        """Whether it was told anything yet."""
        self._fresh = True
        self._dirty: dict[str, None] = {}
        """What may have to be told, in the order in which that was noticed."""
        self._leaving: dict[str, None] = {}
        self._expecting: set[str] = set()
        """What of the response in flight the client will have once it is accepted."""
        self._bisect_queue: deque[tuple[str, ...]] = deque()
        """Parts of a refused response, to be told by themselves: one of them is the bad one."""

    def matches(self, name: str) -> bool:
        """Whether the client asked for this name, or for all."""
        return self.wildcard or name in self.names

    @property
    def idle(self) -> bool:
        """Whether nothing more is to be said, as far as is known."""
        pending = (self.in_flight, self._dirty, self._leaving, self._bisect_queue)
        return not any(pending)

    def settled(self, name: str) -> bool:
        """Whether nothing more is to be said of this name, as far as is known."""
        return not (
            name in self._dirty
            or name in self._leaving
            or name in self._expecting
            or any(name in group for group in self._bisect_queue)
        )

    def mark(self, names: Iterable[str]) -> None:
        """Have these names looked at before the next response."""
        self._dirty.update(dict.fromkeys(names))

    def subscribe(self, names: Iterable[str], versions: Mapping[str, str]) -> None:
        """Take in what is asked for now; ``versions``: what is there from an earlier stream."""
        asked = dict.fromkeys(names)
        if self._fresh:
            self.wildcard = not asked and self.type_url not in NON_WILDCARD
            self.known.update(versions)
            self.mark(versions)
        if WILDCARD in asked:
            del asked[WILDCARD]
            self.wildcard = True
        for name in asked:
            if not (self._fresh and name in versions):
                # Who asks again has it no more.
                self._lost(name)
        self.names.update(asked)
        self.mark(asked)
        self._fresh = False

    def unsubscribe(self, names: Iterable[str]) -> None:
        """Take in what is not asked for any more."""
        for name in names:
            if name == WILDCARD:
                self.wildcard = False
                lost = self.known.keys() - self.names
            else:
                self.names.discard(name)
                lost = {name}
            for each in lost:
                self._lost(each)
                # Of what is covered still, by the wildcard, it is to hear anew.
                self.mark((each,))

    def resend(self, names: Iterable[str]) -> None:
        """Tell of these once more, as far as they are asked for."""
        for name in names:
            if self.matches(name):
                self._lost(name)
                self.mark((name,))

    def _lost(self, name: str) -> None:
        self.known.pop(name, None)
        self.refused.pop(name, None)
        self._leaving.pop(name, None)
        self._expecting.discard(name)

    def next_resources(
        self, lookup: Lookup, publication: SnapshotCache
    ) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
        """Give what is to be told next, and which names that it asked for do not exist."""
        while self._bisect_queue:
            group = dict.fromkeys(self._bisect_queue.popleft())
            found = self._collect(group, lookup, publication)
            self.mark(group)
            if found != ((), ()):
                return found
        return self._collect(self._dirty, lookup, publication)

    def _collect(
        self, names: dict[str, None], lookup: Lookup, publication: SnapshotCache
    ) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
        """Take from ``names`` what goes into one response, and what needs no telling."""
        resources: list[Resource] = []
        missing: list[str] = []
        size = 0
        for name in list(names):
            resource = lookup(name) if self.matches(name) else None
            if resource is not None and self._wants(resource):
                size += len(resource.body)
                if resources and size > RESPONSE_BYTES:
                    break
                resources.append(resource)
            elif resource is None and self._needs_not_found(name, publication):
                missing.append(name)
            del names[name]
        return tuple(resources), tuple(missing)

    def _wants(self, resource: Resource) -> bool:
        name = resource.name
        self._leaving.pop(name, None)
        refused = self.refused.get(name)
        if self.known.get(name) == resource.version:
            self.refused.pop(name, None)
            return False
        return refused is None or refused.resource.version != resource.version

    def _needs_not_found(self, name: str, publication: SnapshotCache) -> bool:
        """Whether the client is to be told at once that there is no such resource.

        What it has is taken away later, when nothing uses it any more.
        """
        self.refused.pop(name, None)
        if not self.matches(name):
            self._lost(name)
            return False
        if not publication.is_absent(self.type_url, name):
            return False
        has = self.known.get(name)
        if has:
            self._leaving[name] = None
        return has is None and name in self.names

    def next_removals(self) -> tuple[str, ...]:
        """Give what is to be taken away."""
        return tuple(self._leaving)

    def sent(self, nonce: str, resources: tuple[Resource, ...], removed: tuple[str, ...]) -> None:
        """Take note of a response on its way."""
        self.in_flight = InFlight(nonce, resources, removed)
        self._expecting = {each.name for each in resources}.union(removed)
        for name in removed:
            self._leaving.pop(name, None)
        self.sent_once = True

    def on_response(self, nonce: str, refusal: Nack | None) -> Set[str]:
        """Take in the client's answer; give the names that it accepts.

        One to a response that is not in flight says nothing.
        """
        response = self.in_flight
        if response is None or response.nonce != nonce:
            return set()
        self.in_flight = None
        expecting, self._expecting = self._expecting, set()
        names = [each.name for each in response.resources]
        told = refusal.reasons.keys() & set(names) if refusal else set()
        certain = refusal is None or bool(told)
        bad = {} if refusal is None else _blamed(names, refusal)
        for each in response.resources:
            if each.name not in expecting:
                # It is to be told again by now, and is judged then.
                continue
            if each.name in bad:
                self.refused[each.name] = refused(each, bad[each.name])
            elif certain:
                self.known[each.name] = each.version
                self.refused.pop(each.name, None)
        if certain or not names:
            self._without(expecting.intersection(response.removed))
        else:
            self._try_again([name for name in names if name not in bad], bad)
            self.mark(response.removed)
        return expecting - bad.keys() if certain else set()

    def _without(self, names: Iterable[str]) -> None:
        """Take note that the client has none of these, and was told so."""
        for name in names:
            self.known.pop(name, None)
            if name in self.names:
                self.known[name] = ABSENT

    def _try_again(self, names: list[str], bad: Mapping[str, str]) -> None:
        """Tell the rest of a refused response again: it may have been applied, or not.

        If the refusal told no culprit, in halves, until one stands alone.
        """
        if bad or len(names) < 2:
            self.mark(names)
            return
        half = len(names) // 2
        self._bisect_queue.extendleft((tuple(names[half:]), tuple(names[:half])))


def _blamed(names: list[str], refusal: Nack) -> Mapping[str, str]:
    """Give the reasons for those of ``names`` that are refused for certain."""
    if told := {name: refusal.reasons[name] for name in names if name in refusal.reasons}:
        return told
    if len(names) == 1:
        return {names[0]: refusal.message}
    return reasons_in(refusal.message, names)
