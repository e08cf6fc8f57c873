"""Quarantine: objects that are left out of a Gateway's configuration because a proxy rejected them.

A proxy accepts or rejects a whole file set or resource. The quarantine of a Gateway traces a
rejection by its proxies to the objects that caused it and replaces only these, only there:

- a match of a route is answered with 500, or is not matched if its match itself is rejected;
- a policy, filter or parameters object is treated as invalid;
- a certificate, trust bundle or secret is treated as invalid until its content changes;
- a port that cannot be bound is not listened on.

A changed object is tried again at once. If the error names no object, or leaving that object out
does not help, the quarantine searches: it holds back everything that changed since the last
confirmed version, then tries the held parts by halves (:mod:`gatehouse.controller.held_back`). No
I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.unsupported import Suspect, Unsupported
from gatehouse.controller.assumed_good import SearchScope, assumed_scopes
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.held_back import changed_parts, held_back_key
from gatehouse.controller.published_versions import MAX_VERSIONS, PublishedVersions, Version
from gatehouse.controller.quarantine_search import Search, named_suspects
from gatehouse.controller.quarantined_routes import (
    changed_routes,
    configured_routes,
    failing_route,
)
from gatehouse.controller.stored_verdicts import (
    REJECTED_BY,
    StatusHistory,
    StoredRejection,
    stored_parts,
)
from gatehouse.dataplane.origin import Origin, port_of
from gatehouse.incremental.query import Key

Replacements = tuple[tuple[Route, Route | None], ...]
"""Rejected routes, each with the route that is served in its place."""


class Quarantine:
    """The quarantine of one Gateway."""

    def __init__(
        self,
        gateway: Key,
        trace: Callable[[ir.GatewayConfiguration, str], Iterable[Suspect]],
        spec_of: Callable[[Key], Any],
        reads: Callable[[Key], bool],
        changes: ChangeLog | None = None,
        history: Callable[[Key], StatusHistory] = lambda _: StatusHistory.NEW,
    ) -> None:
        """``trace`` returns what an error message is about. ``spec_of`` returns the present spec of
        an object; None if it does not exist. ``reads`` returns whether the last pass read an
        input. ``changes`` are those of all objects that are no routes. ``history`` returns what
        statuses of an earlier controller tell about an object."""
        self._changes = changes if changes is not None else ChangeLog()
        self._gateway, self._trace, self._spec_of, self._reads = gateway, trace, spec_of, reads
        self._history = history
        self._serving = self._trials = False
        self._proxies: tuple[str, ...] = ()
        self._unsure: dict[Origin, tuple[bool, str]] = {}
        """Parts that an earlier controller left out, until a version is known to be good: whether
        more is left out than before, and the reason."""
        self.versions = PublishedVersions()
        self._routes: dict[Origin, Replacements] = {}
        self._objects: dict[Origin, gateway_api.RejectedObject] = {}
        self._credentials: dict[str, tuple[tuple[Origin, ...], str]] = {}
        """By name, the origins and the reason."""
        self._ports: dict[int, str] = {}
        self._reasons: dict[Origin, str] = {}
        self._innocent: dict[Origin, Any] = {}
        """Objects that an error named, and without which it persisted, with their specs."""
        self._search: Search | None = None
        self._abandoned: deque[str] = deque(maxlen=MAX_VERSIONS)
        """Versions whose rejection no object explains."""

    @property
    def searching(self) -> bool:
        """True while the cause of a rejection is being searched."""
        return self._search is not None

    @property
    def trial(self) -> bool:
        """True if the steps of the search are trials."""
        return self._search is not None and self._search.scope.trial

    @property
    def left_out(self) -> tuple[Origin, ...]:
        """Everything that is left out, sorted."""
        ports = (port_of(self._gateway, port) for port in self._ports)
        credentials = {origin for origins, _ in self._credentials.values() for origin in origins}
        return tuple(sorted((*self._routes, *self._objects, *credentials, *ports)))

    @property
    def ports(self) -> frozenset[int]:
        """Ports that are not listened on."""
        return frozenset(self._ports)

    @property
    def inputs(self) -> dict[Key, Any]:
        """The inputs of the front end."""
        inputs: dict[Key, Any] = {
            gateway_api.replacement_key(self._gateway, origin): gateway_api.Replacement(routes)
            for origin, routes in self._routes.items()
        }
        if self._search is not None:
            inputs[held_back_key(self._gateway)] = self._search.input
        for origin, rejected in self._objects.items():
            key = gateway_api.rejected_object_key(self._gateway, gateway_api.key_of(origin))
            inputs[key] = rejected
        for name, (_, reason) in self._credentials.items():
            key = gateway_api.rejected_credential_key(self._gateway, name)
            inputs[key] = gateway_api.RejectedCredential(name, reason)
        if self._ports:
            inputs[gateway_api.rejected_ports_key(self._gateway)] = frozenset(self._ports)
        return inputs

    @property
    def findings(self) -> tuple[Unsupported, ...]:
        """Findings about routes and ports. Those about other objects follow from their input."""
        reasons = {origin: self._reasons[origin] for origin in self._routes}
        reasons |= {port_of(self._gateway, port): reason for port, reason in self._ports.items()}
        return tuple(Unsupported(origin, why, rejected=True) for origin, why in reasons.items())

    def seed(
        self, gateway: ir.GatewayConfiguration, stored: Sequence[tuple[Key, StoredRejection]]
    ) -> bool:
        """Leave out what an earlier controller left out. Return whether the inputs changed.

        ``gateway``: the first configuration, before it is published.
        """
        for origin, routes, reason, more in stored_parts(gateway, stored):
            key = gateway_api.key_of(origin)
            spec = self._spec_of(key)
            if routes:
                self._replace(origin, routes, reason, drop=False)
            elif spec is not None:
                self._objects[origin] = gateway_api.RejectedObject(key, spec, reason)
            self._unsure[origin] = (more, reason)
        return bool(self._unsure)

    def connected(self, proxies: Sequence[str], *, serving: bool, trials: bool = False) -> bool:
        """Store the proxies of the connected instances. Return whether the inputs changed.

        Call it until a version is known to be good. ``serving``: one serves a configuration.
        ``trials``: one takes trials.
        """
        new_trials = trials and not self._trials and not self.trial
        self._proxies, self._serving, self._trials = tuple(proxies), serving, trials
        # The search starts again with trials, which no instance serves.
        return new_trials and self.abort()

    def published(
        self,
        version: str,
        gateway: ir.GatewayConfiguration,
        compiled: ir.GatewayConfiguration | None = None,
    ) -> bool:
        """Store a published version. Return whether the inputs changed.

        ``compiled``: the configuration before parts were held back, if any were.
        """
        if not version:
            return False
        compiled = gateway if compiled is None else compiled
        before, left_out = self.versions.newest, frozenset(self.left_out)
        published = self.versions.publish(
            version, Version(0, gateway, compiled, self._changes.now, left_out, self.trial)
        )
        changed = self._release_changed(before.compiled if before else None, compiled)
        search = self._search
        if search is not None and search.since is None:
            search.since, good = published.number, self.versions.good
            if good is not None and good.number >= search.since:
                changed |= self._accept_step(search, published)
        return changed

    def confirmed(self, versions: Iterable[str], rejected: Sequence[Sequence[Origin]] = ()) -> bool:
        """Store the versions that all instances have confirmed. Return whether inputs changed.

        ``rejected``: origins of each resource that an instance rejects.
        """
        oldest = self.versions.oldest(versions)
        if oldest is None or any(map(self._concerns, rejected)):
            return False
        released = not rejected and self.versions.confirm(oldest) and self._retry_unsure()
        search = self._search
        if search is None or search.since is None or oldest.number < search.since:
            return released
        return self._accept_step(search, oldest) or released

    def _retry_unsure(self) -> bool:
        """Try what an earlier controller left out if it was more, or rejected by other proxies."""
        unsure, self._unsure = self._unsure, {}
        starts = tuple(f"{REJECTED_BY}{proxy}: " for proxy in self._proxies)
        released = [
            origin
            for origin, (more, reason) in unsure.items()
            if more or not reason.startswith(starts)
        ]
        for origin in released:
            self._release(origin)
            # A search compares with the version that is good, which lacks the object.
            self._changes.record(gateway_api.key_of(origin))
        return bool(released)

    def rejected(
        self, version: str, message: str, proxy: str, among: Sequence[Origin] = ()
    ) -> bool:
        """Process the rejection of a version. Return whether the inputs changed.

        ``proxy``: name and version for messages. ``among``: origins of what was rejected, if the
        proxy names it.
        """
        known = self.versions.get(version)
        if known is None:
            return False
        reason = f"{REJECTED_BY}{proxy or 'the proxy'}: {message}"
        suspects = named_suspects(known.gateway, tuple(among))
        if not among:
            suspects = list(self._trace(known.gateway, message))
        before = self.inputs
        explained = [self._leave_out(suspect, known, reason) for suspect in suspects]
        if any(explained):
            if self.inputs == before:
                return False
            # The search would go on with a configuration that has what is left out now.
            self._search = None
            return True
        if not self._concerns(among):
            return False
        search = self._search
        if search is not None:
            if search.since is None or known.number < search.since:
                return False
            since = partial(self._changes.changed_since, then=search.changes)
            if search.hold_late(known, changed_parts(search.new, known.compiled, since)):
                return True
            if not search.reject(reason):
                # Not even everything held back is accepted: the cause is something else.
                self._search = search.widened()
                if self._search is None:
                    self._abandoned.extend((search.version, version))
            return True
        if version in self._abandoned:
            return False
        return self._start_search(version, known, among)

    def forget(self, key: Key) -> bool:
        """Process the deletion of an object. Return whether the inputs changed."""
        origins = [o for o in (*self._routes, *self._objects) if gateway_api.key_of(o) == key]
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

    def _concerns(self, among: Sequence[Origin]) -> bool:
        return self._search is None or self._search.concerns(among)

    def _leave_out(self, suspect: Suspect, version: Version, reason: str) -> bool:
        """Leave a part out. Return False if it is not the cause, or cannot be left out."""
        origin = suspect.origin
        if origin.port:
            self._ports.setdefault(origin.port, reason)
            return True
        if suspect.credential:
            held = (c for c in version.gateway.credentials if c.name == suspect.credential)
            self._credentials |= {c.name: (c.origins, reason) for c in held}
            return suspect.credential in self._credentials
        routes = [route for route in configured_routes(version.gateway) if route.origin == origin]
        if routes:
            changed = self._replace(origin, routes, reason, drop=suspect.in_match)
            return changed or origin not in version.left_out
        if origin.part:
            return False
        return self._leave_object_out(origin, version, reason)

    def _leave_object_out(self, origin: Origin, version: Version, reason: str) -> bool:
        key = gateway_api.key_of(origin)
        if self._changes.changed_since(key, version.changes):
            # The rejection is about an earlier spec.
            return True
        spec = self._spec_of(key)
        if spec is None or self._innocent.get(origin) == spec:
            return False
        if origin in version.left_out:
            # It is not the cause.
            self._release(origin)
            self._innocent[origin] = spec
            return False
        if origin not in self._objects or self._objects[origin].spec != spec:
            self._objects[origin] = gateway_api.RejectedObject(key, spec, reason)
        return True

    def _replace(self, origin: Origin, routes: list[Route], reason: str, *, drop: bool) -> bool:
        """Replace the routes of an origin as they were in a rejected version.

        A route that is replaced already is dropped if its replacement was rejected, too. Return
        whether anything changed.
        """
        known = dict(self._routes.get(origin, ()))
        original = {new: old for old, new in known.items() if new is not None}
        replaced: dict[Route, Route | None] = dict(known)
        for route in routes:
            if route in original:
                replaced[original[route]] = None
            elif route not in known:
                replaced[route] = None if drop else failing_route(route)
        if replaced == known:
            return False
        self._routes[origin] = tuple(replaced.items())
        self._reasons.setdefault(origin, reason)
        return True

    def _blame(self, search: Search, part: Suspect, reason: str) -> bool:
        """Leave out a part that was found by a search. Return False if it cannot be left out."""
        if not search.scope.precise:
            # It is tried again when a version is known to be good.
            self._unsure[part.origin] = (True, reason)
        changed = changed_routes(search.scope.good, search.new)
        routes = [route for route in changed if route.origin == part.origin]
        if routes:
            return self._replace(part.origin, routes, reason, drop=False)
        self._innocent.pop(part.origin, None)
        return self._leave_out(part, search.rejected, reason)

    def _release(self, origin: Origin) -> None:
        self._routes.pop(origin, None)
        self._objects.pop(origin, None)
        self._reasons.pop(origin, None)

    def _release_changed(
        self, before: ir.GatewayConfiguration | None, now: ir.GatewayConfiguration
    ) -> bool:
        """Release what was left out and has changed: it is in the published version again."""
        released = [
            origin
            for origin, rejected in self._objects.items()
            if self._spec_of(gateway_api.key_of(origin)) != rejected.spec
        ]
        if self._routes:
            for route in changed_routes(before, now):
                replaced = self._routes.get(route.origin)
                if replaced is not None and all(route != new for _, new in replaced):
                    released.append(route.origin)
        for origin in released:
            self._release(origin)
        keys = {n: gateway_api.rejected_credential_key(self._gateway, n) for n in self._credentials}
        unused = [name for name, key in keys.items() if not self._reads(key)]
        for name in unused:
            del self._credentials[name]
        return bool(released or unused)

    def _start_search(self, version: str, known: Version, among: Sequence[Origin]) -> bool:
        good = self.versions.good
        if good is None:
            scopes = assumed_scopes(
                known.compiled, self._history, serving=self._serving, trials=self._trials
            )
        else:
            since = partial(self._changes.changed_since, then=good.changes)
            parts = changed_parts(good.gateway, known.gateway, since)
            scopes = iter([SearchScope(good.gateway, parts)])
        self._search = Search.start(version, known, scopes, tuple(among))
        if self._search is None:
            self._abandoned.append(version)
        return self._search is not None

    def _accept_step(self, search: Search, version: Version) -> bool:
        cause = search.accept(version)
        if cause is not None:
            search.successful |= self._blame(search, *cause)
        if search.finished:
            self._search = None
            if not search.successful:
                # An instance accepts in a trial what it rejects when it serves it.
                self._search = search.widened() if search.scope.trial else None
                if self._search is None:
                    self._abandoned.append(search.version)
        return True
