"""Search for the parts of a configuration because of which a proxy rejects it. No I/O.

A verdict about a part is proven: a configuration was rejected with it, and accepted without it.
What a message names is only tried first.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.assumed_good import SearchScope
from gatehouse.controller.held_back import HeldBack, is_route
from gatehouse.controller.part_order import Parts
from gatehouse.controller.published_versions import Version
from gatehouse.controller.used_credentials import needs_of_new_routes
from gatehouse.dataplane.origin import Origin

Younger = Callable[[SearchScope, ir.GatewayConfiguration, Parts], Parts]

MAX_REFINEMENTS = 16
"""Maximum number of divisions of one object. Its other parts then have the verdict together."""

MAX_REPETITIONS = 3
"""Maximum number of tests of one part beside objects that change at each of them."""

MAX_RECALLS = 6
"""Maximum number of tests of one object without those that changed after it."""


class Rejected(msgspec.Struct, frozen=True):
    """Parts with which a configuration was rejected."""

    parts: Parts
    version: Version
    reason: str
    named: tuple[Suspect, ...] = ()
    """Parts that the message names."""


class Search(msgspec.Struct):
    """Search for the causes of the rejection of one version.

    All parts are held back at first. A group of parts that is rejected is divided: what the message
    names and the rest, or halves. The first division is tried. If it is accepted, the second one is
    known to be rejected. Namespaces are divided before their objects, those with fewer parts first,
    so that no namespace waits for the many rejected objects of another one. Objects that change
    meanwhile are in every step. A step that is rejected with such changes is followed by one with
    these alone.

    So an object may be rejected because of one that changed after it and was accepted before. It is
    tried without those that changed after it, first without those of its namespace. If it is
    accepted, they are the rejected group. A credential is also tried without some of the new routes
    that need it.
    """

    version: str
    """The rejected version."""
    rejected: Rejected
    scope: SearchScope
    new: ir.GatewayConfiguration
    """The newest configuration whose changes are held back or accepted."""
    changes: int
    """Number of changes of objects before :attr:`new`."""
    held: set[Suspect]
    """Parts that are held back."""
    younger: Younger = lambda *_: ()
    """Returns the parts of a scope and a configuration that changed after some parts, the oldest
    first."""
    scopes: Iterator[SearchScope] = iter(())
    """The next scopes, for the case that the cause is none of the parts."""
    among: tuple[Origin, ...] = ()
    """Origins of what was rejected, if the proxy names it."""
    groups: list[Parts] = []
    """Held parts that are still to be tried, the next group last."""
    later: list[tuple[Parts, Rejected]] = []
    """Divided groups of one namespace each, tried when :attr:`groups` has no other namespace."""
    trying: Parts = ()
    """Parts under trial; empty: everything is held back, which must be accepted."""
    pending: Rejected | None = None
    """Parts that are the cause if this step is accepted."""
    recalled: bool = False
    """True if :attr:`pending` was accepted before, and is held back because it is younger."""
    successful: bool = False
    """True if a part was left out as the result."""
    _proven: bool = False
    """True if a step was accepted."""
    _named: bool = False
    """True if the last division was by a message. The next one is by halves, since messages may
    name one part of many, or lie."""
    _refinements: Counter[Origin] = msgspec.field(default_factory=Counter)
    _recalls: Counter[Origin] = msgspec.field(default_factory=Counter)
    """Number of tests of each object without what is younger."""
    _rejected_without: defaultdict[Origin, list[frozenset[Suspect]]] = msgspec.field(
        default_factory=lambda: defaultdict(list)
    )
    """Younger parts without which each object was rejected, too."""
    _repetitions: Counter[Suspect] = msgspec.field(default_factory=Counter)
    _input: HeldBack | None = None

    @classmethod
    def start(
        cls,
        version: str,
        rejected: Rejected,
        scopes: Iterator[SearchScope],
        among: tuple[Origin, ...] = (),
        younger: Younger = lambda *_: (),
    ) -> Search | None:
        """Return a search in the first scope with any parts; None if there is none.

        ``version``: that which was rejected. ``scopes``: where the cause may be. ``younger``: see
        the attribute.
        """
        for scope in scopes:
            # A proxy that names routes may reject them because of a policy or filter.
            parts = tuple(
                part
                for part in scope.parts
                if not among or part.origin in among or not is_route(part)
            )
            if not parts:
                continue
            known = rejected.version
            search = cls(
                version,
                rejected,
                scope,
                known.compiled,
                known.changes,
                set(parts),
                younger,
                scopes,
                among,
            )
            first, named = search._divided(parts, rejected.named)
            if named and search._named:
                search._try(first, msgspec.structs.replace(rejected, parts=named))
            else:
                search._try((), msgspec.structs.replace(rejected, parts=parts))
            return search
        return None

    @classmethod
    def retry(cls, good: Version, parts: Parts, younger: Younger = lambda *_: ()) -> Search:
        """Return a search that tries parts that are left out of a good version.

        ``younger``: see the attribute.
        """
        search = cls(
            "",
            Rejected(parts, good, ""),
            SearchScope(good.gateway, parts),
            good.compiled,
            good.changes,
            set(parts),
            younger,
        )
        search.trying, search._proven = parts, True
        return search

    def again(self, rejected: Rejected, scopes: Iterator[SearchScope]) -> Search | None:
        """Return a search in other scopes; None if there is none."""
        return Search.start(self.version, rejected, scopes, self.among, self.younger)

    def widened(self) -> Search | None:
        """Return a search in the next scope; None if the cause is in none."""
        return self.again(self.rejected, self.scopes)

    @property
    def input(self) -> HeldBack:
        """Everything that is held back in this step. The same object during one step."""
        if self._input is None:
            scope, held = self.scope, frozenset(self.held.difference(self.trying))
            self._input = HeldBack(scope.good, held, scope.view, scope.trial)
        return self._input

    @property
    def finished(self) -> bool:
        """True if every part was tried."""
        waiting = self.trying or self.groups or self.later or self.pending is not None
        return self._proven and not waiting

    def concerns(self, among: Sequence[Origin]) -> bool:
        """Return whether a rejection of these origins is about the same resource.

        Empty origins, as of a whole configuration, concern every search.
        """
        return not (self.among and among) or not set(self.among).isdisjoint(among)

    def accept(self, version: Version) -> Rejected | None:
        """Process that the step was accepted. Return parts that are a cause.

        ``version``: a version of this step.
        """
        pending = self.pending
        unchanged = pending is None or pending.version.compiled == version.compiled
        self.new, self.changes, self._proven = version.compiled, version.changes, True
        self.held.difference_update(self.trying)
        if pending is None:
            self._next_step()
            return None
        if not unchanged and len(pending.parts) == 1:
            # What changed meanwhile may have been the cause.
            self._repetitions.update(pending.parts)
            if self._repetitions[pending.parts[0]] < MAX_REPETITIONS:
                self._try(pending.parts)
                return None
        return self._condemn(pending)

    def reject(self, rejected: Rejected, late: Parts) -> Rejected | None:
        """Process that the step was rejected. Return parts that are a cause.

        ``rejected``: its version, and what the message names. ``late``: parts that changed since
        the last accepted step.
        """
        version, tried, pending = rejected.version, self.trying, self.pending
        late = tuple(part for part in late if part not in self.held)
        if pending is not None and self.recalled:
            self.held.difference_update(pending.parts)
            if not late:
                self._rejected_without[_object(tried[0])].append(frozenset(pending.parts))
        elif pending is not None:
            self.groups.append(pending.parts)
        if not self._proven and tried:
            # What the message named is not all: everything is held back next.
            self._try((), msgspec.structs.replace(rejected, parts=tried))
            return None
        rejected = msgspec.structs.replace(rejected, parts=tried or late)
        if tried and late:
            self._try((), rejected)
            return None
        if late:
            self.held.update(late)
            self.new, self.changes = version.compiled, version.changes
            if not self._proven:
                self.groups.insert(0, late)
                self._try(())
                return None
        return self._condemn(rejected)

    @property
    def hopeless(self) -> bool:
        """True if everything is held back, so that a rejection has another cause."""
        return not self.trying

    def repeat(self, parts: Parts) -> None:
        """Try parts again at the end: they changed after the rejection."""
        self.groups.insert(0, parts)

    def _condemn(self, rejected: Rejected) -> Rejected | None:
        if self._recall(rejected):
            return None
        first, second = self._divided(rejected.parts, rejected.named)
        if first and second:
            division = first, msgspec.structs.replace(rejected, parts=second)
            namespaces = _namespaces(rejected.parts).keys()
            if len(namespaces) > 1 or all(
                _namespaces(group).keys() == namespaces for group in self.groups
            ):
                self._try(*division)
            else:
                self.later.append(division)
                self._next_step()
            return None
        self._next_step()
        return rejected

    def _recall(self, rejected: Rejected) -> bool:
        """Try one object without what is younger, unless this was tried. Return whether it is."""
        first, *others = dict.fromkeys(map(_object, rejected.parts))
        if others or not self._proven or self._recalls[first] == MAX_RECALLS:
            return False
        for recalled in self._recallable(rejected.parts):
            tried = self._rejected_without[first]
            if recalled and not any(before.issuperset(recalled) for before in tried):
                break
        else:
            return False
        self._recalls[first] += 1
        self.held.update(recalled)
        self._try(rejected.parts, msgspec.structs.replace(rejected, parts=recalled))
        self.recalled = True
        return True

    def _recallable(self, parts: Parts) -> Iterator[Parts]:
        """Yield what may be the cause of a rejection together with some parts, or instead.

        A proxy reads a credential only with a route that needs it, and a route is held back with
        what it needs. So a credential is tried with some of its new routes, and not the other way
        round: it is not the cause if it is accepted with any.
        """
        needs = needs_of_new_routes(self.scope.good, self.scope.view(self.new))
        needed = set().union(*(needs.get(part.origin, ()) for part in parts))
        younger = tuple(
            part
            for part in self.younger(self.scope, self.new, parts)
            if part not in self.held and part.credential not in needed
        )
        namespace = _namespace(parts[0])
        yield tuple(part for part in younger if _namespace(part) == namespace)
        yield younger
        if name := parts[0].credential:
            users = [Suspect(origin) for origin in sorted(needs) if name in needs[origin]]
            yield from _all_but_some([part for part in users if part not in self.held])

    def _next_step(self) -> None:
        if self.later and not self.groups:
            self._try(*self.later.pop())
        else:
            self._try(self.groups.pop() if self.groups else ())

    def _try(self, parts: Parts, pending: Rejected | None = None) -> None:
        self.trying, self.pending, self.recalled, self._input = parts, pending, False, None

    def _divided(self, parts: Parts, named: Iterable[Suspect]) -> tuple[Parts, Parts]:
        """Divide a rejected group. The second part is empty if it has the verdict as a whole."""
        objects = tuple(dict.fromkeys(_object(part) for part in parts))
        suspects = {part.origin if len(objects) == 1 else _object(part) for part in named}
        if len(objects) == 1 and len(parts) > 1:
            self._refinements.update(objects)
            if self._refinements[objects[0]] > MAX_REFINEMENTS:
                return parts, ()
        second = tuple(
            part
            for part in parts
            if (part.origin if len(objects) == 1 else _object(part)) in suspects
        )
        self._named = not self._named and 0 < len(second) < len(parts)
        if self._named:
            return tuple(part for part in parts if part not in second), second
        if len(namespaces := _namespaces(parts)) > 1:
            return _divided_by_namespace(parts, namespaces)
        if len(objects) > 1:
            later = frozenset(objects[len(objects) // 2 :])
            half = tuple(part for part in parts if _object(part) in later)
            return tuple(part for part in parts if _object(part) not in later), half
        return parts[: len(parts) // 2], parts[len(parts) // 2 :]


def _object(part: Suspect) -> Origin:
    """Return the object of a part, so that all its matches are tried together; a port is one."""
    return part.origin if part.origin.port else part.origin.whole


def _namespaces(parts: Iterable[Suspect]) -> Counter[str]:
    """Return the number of parts of each namespace. Ports are in none."""
    return Counter(map(_namespace, parts))


def _divided_by_namespace(parts: Parts, namespaces: Counter[str]) -> tuple[Parts, Parts]:
    """Divide parts of several namespaces: up to half of the parts, of those with the fewest.

    Ports are in the second part.
    """
    fewest = sorted(namespaces, key=lambda name: (not name, namespaces[name]))
    totals = itertools.accumulate(namespaces[name] for name in fewest)
    most = max(namespaces[fewest[0]], len(parts) // 2)
    chosen = {name for name, total in zip(fewest[:-1], totals, strict=False) if total <= most}
    first = tuple(part for part in parts if _namespace(part) in chosen)
    return first, tuple(part for part in parts if _namespace(part) not in chosen)


def _all_but_some(users: Sequence[Suspect]) -> Iterator[Parts]:
    """Yield all but one half of some parts, then all but one quarter."""
    for count in (2, 4) if len(users) > 1 else ():
        size = -(-len(users) // count)
        for start in range(0, len(users), size):
            yield (*users[:start], *users[start + size :])


def _namespace(part: Suspect) -> str:
    return part.origin.namespace if part.origin.kind else ""
