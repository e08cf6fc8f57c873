"""Quarantine: objects that are left out of a Gateway's configuration because a proxy rejected them.

A proxy accepts or rejects a whole file set or resource, whatever else is in it. The quarantine
traces a rejection to the objects that caused it and replaces only these:

- a match of a route is answered with 500, or is not matched if its match itself is rejected;
- a policy, filter or parameters object is treated as invalid;
- a certificate is treated as invalid until its content changes;
- a port that cannot be bound is not listened on.

A changed object is tried again at once. If the error names no object, the quarantine searches: it
holds back everything that changed since the last confirmed version, so that all else can go live,
then tries the held parts by halves. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Respond, Route
from gatehouse.compiler.ir.unsupported import Suspect, Unsupported
from gatehouse.dataplane.origin import Origin, of_port
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import difference

VERSIONS_MAX = 16
"""Maximum number of remembered versions. Agents answer within seconds, and versions that are
published while one is applied are skipped."""

Replacements = tuple[tuple[Route, Route | None], ...]
"""Rejected routes, each with the route that is served in its place."""


class _Version(msgspec.Struct, frozen=True):
    number: int
    gateway: ir.Gateway


class _Search(msgspec.Struct):
    """Search for the cause of a rejection that names no object."""

    version: str
    """The rejected version."""
    held: dict[Origin, Replacements]
    """Parts that are held back, with what is served in their place."""
    groups: list[tuple[Origin, ...]] = []
    """Held parts that are still to be tried, the next group last."""
    trying: tuple[Origin, ...] = ()
    """Parts under trial; empty: everything is held, which must be accepted."""
    blamed: tuple[Origin, str] | None = None
    """A part that was rejected alone, to be verified without it."""
    since: int | None = None
    """Number of the first version of this step; None until it is published."""

    def next_step(self) -> None:
        """Try the next group."""
        self.trying, self.since = self.groups.pop(), None

    def split(self, group: tuple[Origin, ...]) -> None:
        """Add both halves of a group that was rejected."""
        half = len(group) // 2
        self.groups += [part for part in (group[half:], group[:half]) if part]

    @property
    def replaced(self) -> dict[Origin, Replacements]:
        return {origin: each for origin, each in self.held.items() if origin not in self.trying}


class Quarantine:
    """The quarantine of one Gateway."""

    def __init__(
        self,
        gateway: Key,
        trace: Callable[[ir.Gateway, str], Iterable[Suspect]],
        spec_of: Callable[[Key], Any],
        reads: Callable[[Key], bool],
    ) -> None:
        """``trace`` returns what an error message is about. ``spec_of`` returns the present spec of
        an object; None if it does not exist. ``reads`` returns whether the last pass read an
        input."""
        self._gateway, self._trace, self._spec_of, self._reads = gateway, trace, spec_of, reads
        self._versions: dict[str, _Version] = {}
        self._newest = ""
        self._good: _Version | None = None
        self._routes: dict[Origin, Replacements] = {}
        self._objects: dict[Origin, gateway_api.RejectedObject] = {}
        self._certificates: dict[str, tuple[Origin, str]] = {}
        """By name, the origin and the reason."""
        self._ports: dict[int, str] = {}
        self._reasons: dict[Origin, str] = {}
        self._search: _Search | None = None
        self._changed: dict[Key, int] = {}
        """By object that was rejected or changed, the number of the first version with its present
        spec."""
        self._abandoned = ""
        """Version whose rejection no object explains."""

    @property
    def searching(self) -> bool:
        """True while the cause of a rejection is being searched."""
        return self._search is not None

    @property
    def left_out(self) -> tuple[Origin, ...]:
        """Everything that is left out, sorted."""
        ports = [of_port("/".join(self._gateway[1:]), port) for port in self._ports]
        certificates = {origin for origin, _ in self._certificates.values()}
        return tuple(sorted((*self._routes, *self._objects, *certificates, *ports)))

    @property
    def ports(self) -> frozenset[int]:
        """Ports that are not listened on."""
        return frozenset(self._ports)

    @property
    def inputs(self) -> dict[Key, Any]:
        """The inputs of the front end."""
        replaced = dict(self._routes)
        for origin, held in (self._search.replaced if self._search else {}).items():
            replaced[origin] = tuple((dict(replaced.get(origin, ())) | dict(held)).items())
        inputs: dict[Key, Any] = {
            gateway_api.replacement_key(self._gateway, origin): gateway_api.Replacement(routes)
            for origin, routes in replaced.items()
        }
        for origin, rejected in self._objects.items():
            inputs[gateway_api.rejected_object_key(gateway_api.key_of(origin))] = rejected
        for name, (_, reason) in self._certificates.items():
            inputs[gateway_api.rejected_certificate_key(self._gateway, name)] = reason
        if self._ports:
            inputs[gateway_api.rejected_ports_key(self._gateway)] = frozenset(self._ports)
        return inputs

    @property
    def findings(self) -> tuple[Unsupported, ...]:
        """Findings about routes and ports. Those about other objects follow from their input."""
        name = "/".join(self._gateway[1:])
        reasons = {origin: self._reasons[origin] for origin in self._routes}
        reasons |= {of_port(name, port): reason for port, reason in self._ports.items()}
        return tuple(Unsupported(origin, why, rejected=True) for origin, why in reasons.items())

    def published(self, version: str, gateway: ir.Gateway) -> bool:
        """Store a published version. Return whether the inputs changed."""
        if not version:
            return False
        previous = self._versions.get(self._newest)
        if version != self._newest:
            number = previous.number + 1 if previous else 1
            self._versions.pop(version, None)
            self._versions[version] = _Version(number, gateway)
            self._newest = version
            self._forget_versions()
        changed = self._release_changed(previous.gateway if previous else None, gateway)
        search = self._search
        if search is not None and search.since is None:
            search.since = self._versions[version].number
            if self._good is not None and self._good.number >= search.since:
                changed |= self._accept_step(search)
        return changed

    def confirmed(self, versions: Iterable[str]) -> bool:
        """Store the versions that all instances have confirmed. Return whether inputs changed."""
        found = [self._versions.get(version) for version in versions]
        known = [version for version in found if version is not None]
        if not known or len(known) < len(found):
            return False
        oldest = min(known, key=lambda version: version.number)
        if self._good is None or oldest.number > self._good.number:
            self._good = oldest
            self._forget_versions()
        search = self._search
        if search is None or search.since is None or oldest.number < search.since:
            return False
        return self._accept_step(search)

    def rejected(
        self, version: str, message: str, proxy: str, among: Sequence[Origin] = ()
    ) -> bool:
        """Process the rejection of a version. Return whether the inputs changed.

        ``proxy``: name and version for messages. ``among``: origins of what was rejected, if the
        proxy names it.
        """
        known = self._versions.get(version)
        if known is None:
            return False
        reason = f"rejected by {proxy or 'the proxy'}: {message}"
        suspects = [Suspect(among[0])] if len(among) == 1 else []
        if not among:
            suspects = list(self._trace(known.gateway, message))
        before = self.inputs
        explained = [self._leave_out(suspect, known, reason) for suspect in suspects]
        if any(explained):
            return self.inputs != before
        search = self._search
        if search is not None:
            if search.since is None or known.number < search.since:
                return False
            return self._reject_step(search, reason)
        if version == self._abandoned:
            return False
        return self._start_search(version, known.gateway, among)

    def object_changed(self, key: Key) -> None:
        """Process a change of an object: rejections of earlier versions are not about it."""
        if key[0] not in gateway_api.ROUTE_KINDS and self._newest:
            self._changed[key] = self._versions[self._newest].number + 1

    def forget(self, key: Key) -> bool:
        """Process the deletion of an object. Return whether the inputs changed."""
        origins = [each for each in (*self._routes, *self._objects) if _is_part(each, key)]
        for origin in origins:
            self._release(origin)
        return bool(origins)

    def retry_ports(self) -> bool:
        """Listen on all ports again. Return whether the inputs changed."""
        had, self._ports = bool(self._ports), {}
        return had

    def abort(self) -> bool:
        """End a search without a result. Return whether the inputs changed."""
        had, self._search = self._search is not None, None
        return had

    def _forget_versions(self) -> None:
        oldest = self._good.number if self._good is not None else 0
        while len(self._versions) > VERSIONS_MAX:
            del self._versions[next(iter(self._versions))]
        for version in [v for v, known in self._versions.items() if known.number < oldest]:
            del self._versions[version]
        for key in [key for key, number in self._changed.items() if number <= oldest]:
            del self._changed[key]

    def _leave_out(self, suspect: Suspect, version: _Version, reason: str) -> bool:
        """Leave a part out. Return False if it is not the cause, or cannot be left out."""
        origin = suspect.origin
        if origin.port:
            self._ports.setdefault(origin.port, reason)
            return True
        certificates = [each for each in version.gateway.certificates if each.origin == origin]
        if certificates:
            self._certificates |= {each.name: (origin, reason) for each in certificates}
            return True
        routes = [route for route in _routes(version.gateway) if route.origin == origin]
        if routes:
            return self._replace(origin, routes, reason, drop=suspect.in_match)
        if origin.part:
            return False
        key = gateway_api.key_of(origin)
        if version.number < self._changed.get(key, 0):
            return True
        spec = self._spec_of(key)
        if spec is None:
            return False
        if origin not in self._objects or self._objects[origin].spec != spec:
            self._objects[origin] = gateway_api.RejectedObject(spec, reason)
        return True

    def _replace(self, origin: Origin, routes: list[Route], reason: str, *, drop: bool) -> bool:
        """Replace the routes of an origin as they were in a rejected version.

        A route that is replaced already is dropped if its replacement was rejected, too. Return
        False if there is nothing left to do.
        """
        known = dict(self._routes.get(origin, ()))
        original = {new: old for old, new in known.items() if new is not None}
        replaced: dict[Route, Route | None] = dict(known)
        for route in routes:
            if route in original:
                replaced[original[route]] = None
            elif route not in known:
                replaced[route] = None if drop else _failing(route)
        self._routes[origin] = tuple(replaced.items())
        self._reasons.setdefault(origin, reason)
        return True

    def _blame(self, origin: Origin, held: Replacements, reason: str) -> None:
        """Leave out a part that was found by a search: first by 500, then without its match."""
        known = dict(self._routes.get(origin, ()))
        for route, _ in held:
            known[route] = None if route in known else _failing(route)
        self._routes[origin] = tuple(known.items())
        self._reasons.setdefault(origin, reason)

    def _release(self, origin: Origin) -> None:
        self._routes.pop(origin, None)
        self._objects.pop(origin, None)
        self._reasons.pop(origin, None)

    def _release_changed(self, before: ir.Gateway | None, now: ir.Gateway) -> bool:
        """Release what was left out and has changed: it is in the published version again."""
        released = [
            origin
            for origin, rejected in self._objects.items()
            if self._spec_of(gateway_api.key_of(origin)) != rejected.spec
        ]
        if self._routes:
            for route in _changed_routes(before, now):
                replaced = self._routes.get(route.origin)
                if replaced is not None and all(route != new for _, new in replaced):
                    released.append(route.origin)
        for origin in released:
            self._release(origin)
        unused = [name for name in self._certificates if not self._is_used(name)]
        for name in unused:
            del self._certificates[name]
        return bool(released or unused)

    def _is_used(self, certificate: str) -> bool:
        return self._reads(gateway_api.rejected_certificate_key(self._gateway, certificate))

    def _start_search(self, version: str, gateway: ir.Gateway, among: Sequence[Origin]) -> bool:
        good = self._good.gateway if self._good is not None else None
        changed: dict[Origin, list[Route]] = {}
        for route in _changed_routes(good, gateway):
            if route.origin.name and (not among or route.origin in among):
                changed.setdefault(route.origin, []).append(route)
        previous = _by_name(good, changed) if good is not None else {}
        held: dict[Origin, Replacements] = {}
        for origin, routes in changed.items():
            originals = {new: old for old, new in self._routes.get(origin, ()) if new is not None}
            held[origin] = tuple(
                (originals.get(route, route), previous.get((origin, route.name)))
                for route in routes
            )
        if not held:
            self._abandoned = version
            return False
        self._search = _Search(version, held)
        self._search.split(tuple(sorted(held)))
        return True

    def _accept_step(self, search: _Search) -> bool:
        for origin in search.trying:
            del search.held[origin]
        if search.blamed is not None:
            origin, reason = search.blamed
            self._blame(origin, search.held.pop(origin), reason)
        search.blamed = None
        if search.groups:
            search.next_step()
        else:
            self._search = None
        return True

    def _reject_step(self, search: _Search, reason: str) -> bool:
        if not search.trying:
            # Not even everything held is accepted: the cause is something else.
            self._search, self._abandoned = None, search.version
        elif len(search.trying) == 1:
            search.blamed = (search.trying[0], reason)
            search.trying, search.since = (), None
        else:
            search.split(search.trying)
            search.next_step()
        return True


def _failing(route: Route) -> Route:
    return Route(route.name, route.match, Respond(500), origin=route.origin)


def _routes(gateway: ir.Gateway) -> Iterator[Route]:
    for listener in gateway.listeners:
        for host in listener.virtual_hosts:
            yield from host.routes


def _changed_routes(before: ir.Gateway | None, now: ir.Gateway) -> Iterator[Route]:
    """Yield the routes of ``now`` that are in virtual hosts that changed and are new there."""
    known = {each.port: each.virtual_hosts for each in before.listeners} if before else {}
    for listener in now.listeners:
        new, gone = difference(known.get(listener.port, ()), listener.virtual_hosts)
        old = {route for host in gone for route in host.routes}
        yield from (route for host in new for route in host.routes if route not in old)


def _by_name(gateway: ir.Gateway, origins: Iterable[Origin]) -> dict[tuple[Origin, str], Route]:
    wanted = frozenset(origins)
    return {
        (route.origin, route.name): route for route in _routes(gateway) if route.origin in wanted
    }


def _is_part(origin: Origin, key: Key) -> bool:
    return gateway_api.key_of(origin) == key
