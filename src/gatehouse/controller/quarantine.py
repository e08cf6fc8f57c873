"""Quarantine: objects that are left out of a Gateway's configuration because a proxy rejected them.

A proxy accepts or rejects a whole file set or resource. After a rejection, the quarantine of a
Gateway searches for the parts that are the cause, and replaces only these, only there:

- a match of a route is answered with 500, or is not matched if its match itself is rejected;
- a policy, filter or parameters object is treated as invalid;
- a certificate, trust bundle or secret is treated as invalid until its content changes;
- a port that cannot be bound is not listened on.

The search holds back what changed since the last confirmed version, first what the proxy's message
names (:mod:`gatehouse.controller.quarantine_search`). No I/O.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect, Unsupported
from gatehouse.controller.assumed_good import SearchScope, credential_scopes, named_scope
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.held_back import held_back_key, is_route
from gatehouse.controller.history_order import HistoryOrder
from gatehouse.controller.named_parts import named_parts
from gatehouse.controller.part_order import parts_after, parts_in_order, read_together
from gatehouse.controller.published_versions import MAX_VERSIONS, PublishedVersions, Version
from gatehouse.controller.quarantine_search import Rejected, Search, Younger
from gatehouse.controller.quarantined_routes import configured_routes
from gatehouse.controller.stored_verdicts import (
    REJECTED_BY,
    StatusHistory,
    StoredRejection,
    stored_parts,
)
from gatehouse.controller.verdicts import Verdicts, rejected_routes
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key

MAX_NAMED = 8
"""Maximum number of rejections that extend a search by what they name."""


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
        clock: Callable[[], float] = time.monotonic,
        changed_at: Callable[[Key], str] = lambda _: "",
    ) -> None:
        """``trace`` returns what an error message is about. ``spec_of`` returns the present spec of
        an object; None if it does not exist. ``reads`` returns whether the last pass read an
        input. ``changes`` are those of all objects. ``history`` returns what statuses of an earlier
        controller tell about an object, and ``changed_at`` when it changed last (RFC 3339)."""
        self._changes = changes if changes is not None else ChangeLog()
        self._gateway, self._trace, self._spec_of = gateway, trace, spec_of
        self._order = HistoryOrder(self._changes, history, changed_at)
        self._serving = self._trials = False
        self._proxies: tuple[str, ...] = ()
        self._unsure: dict[Origin, tuple[bool, str]] = {}
        """Parts that may be left out without need, until a version is known to be good: whether
        they certainly are tried then, and the reason."""
        self.versions = PublishedVersions()
        self.verdicts = Verdicts(gateway, spec_of, reads, clock)
        self._search: Search | None = None
        self._since: int | None = None
        """Number of the first version with the present inputs; None until it is published. A
        report about an older one is late."""
        self._deleted: set[Key] = set()
        """Objects that were deleted during a search and may be in the newest version."""
        self._abandoned: deque[str] = deque(maxlen=MAX_VERSIONS)
        """Versions whose rejection no object explains."""

    @property
    def searching(self) -> bool:
        """True while the cause of a rejection is being searched."""
        return self._search is not None

    @property
    def retrying(self) -> bool:
        """True while parts that were left out are tried again."""
        return self._search is not None and not self._search.version

    @property
    def unpublished(self) -> bool:
        """True until the configuration with the present inputs is published: reports are late."""
        return self._since is None

    @property
    def trial(self) -> bool:
        """True if the steps of the search are trials."""
        return self._search is not None and self._search.scope.trial

    @property
    def left_out(self) -> tuple[Origin, ...]:
        """Everything that is left out, sorted."""
        return self.verdicts.left_out

    @property
    def ports(self) -> frozenset[int]:
        """Ports that are not listened on."""
        return frozenset(part.origin.port for part in self.verdicts.known if not part.origin.kind)

    @property
    def inputs(self) -> dict[Key, Any]:
        """The inputs of the front end."""
        inputs = self.verdicts.inputs
        if self._search is not None:
            inputs[held_back_key(self._gateway)] = self._search.input
        return inputs

    @property
    def findings(self) -> tuple[Unsupported, ...]:
        """Findings about routes and ports. Those about other objects follow from their input."""
        return self.verdicts.findings

    def seed(
        self, gateway: ir.GatewayConfiguration, stored: Sequence[tuple[Key, StoredRejection]]
    ) -> bool:
        """Leave out what an earlier controller left out. Return whether the inputs changed.

        ``gateway``: the first configuration, before it is published.
        """
        for part, routes, reason, more in stored_parts(gateway, stored):
            if self.verdicts.leave_out(part, routes, gateway, reason):
                self._unsure[part.origin] = (more, reason)
        return bool(self._unsure)

    def connected(self, proxies: Sequence[str], *, serving: bool, trials: bool = False) -> bool:
        """Store the proxies of the connected instances. Return whether the inputs changed.

        ``serving``: one serves a configuration. ``trials``: one takes trials.
        """
        if self._proxies and self._proxies != tuple(proxies):
            self.verdicts.hurry(0.0)
        new_trials = trials and not self._trials and not self.trial
        self._proxies, self._serving, self._trials = tuple(proxies), serving, trials
        # The search starts again with trials, which no instance serves.
        return self.versions.good is None and new_trials and self.abort()

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
        self._deleted.clear()
        before = self.versions.newest
        published = self.versions.publish(
            version, Version(0, gateway, compiled, self._changes.now, self.trial)
        )
        changed = self.verdicts.release_changed(before.compiled if before else None, compiled)
        if self._since is None:
            self._since, good, search = published.number, self.versions.good, self._search
            if search is not None and good is not None and good.number >= published.number:
                changed |= self._after_step(search, search.accept(published))
        return changed

    def confirmed(self, versions: Iterable[str], rejected: Sequence[Sequence[Origin]] = ()) -> bool:
        """Store the versions that all instances have confirmed. Return whether inputs changed.

        ``rejected``: origins of each resource that an instance rejects.
        """
        oldest = self.versions.oldest(versions)
        if oldest is None or any(map(self._concerns, rejected)):
            return False
        if not rejected:
            self.versions.confirm(oldest)
        if self._since is None or oldest.number < self._since:
            return False
        if self._search is not None:
            return self._after_step(self._search, self._search.accept(oldest))
        if self.versions.good is not None:
            self._retry_unsure()
        return self.retry()

    def _retry_unsure(self) -> None:
        """Try what an earlier controller left out if it was more, or rejected by other proxies."""
        starts = tuple(f"{REJECTED_BY}{proxy}: " for proxy in self._proxies)
        unsure = [
            origin
            for origin, (certainly, reason) in self._unsure.items()
            if certainly or not reason.startswith(starts)
        ]
        self._unsure = {}
        if unsure:
            self.verdicts.hurry(0.0, unsure)

    def retry(self) -> bool:
        """Try verdicts again whose time has come. Return whether the inputs changed.

        The newest version must be known to be good: a verdict is tried alone.
        """
        good, newest = self.versions.good, self.versions.newest
        if self.searching or good is None or newest is None:
            return False
        parts = self.verdicts.due() if good.number == newest.number else ()
        if not parts:
            return False
        self._search, self._since = Search.retry(good, parts, self._younger(good)), None
        self.verdicts.suspend(parts)
        for part in parts:
            # They differ from the version that is good.
            if part.origin.kind and not is_route(part):
                self._changes.record(gateway_api.key_of(part.origin))
        return True

    def rejected(
        self, version: str, message: str, proxy: str, among: Sequence[Origin] = ()
    ) -> bool:
        """Process the rejection of a version. Return whether the inputs changed.

        ``proxy``: name and version for messages. ``among``: origins of what was rejected, if the
        proxy names it.
        """
        known = self.versions.get(version)
        if known is None or self._since is None or known.number < self._since:
            return False
        if not self._concerns(among):
            return False
        search, among = self._search, tuple(among)
        if search is None and version in self._abandoned:
            return False
        reason = f"{REJECTED_BY}{proxy or 'the proxy'}: {message}"
        named = tuple(named_parts(known.gateway, among, lambda now: self._trace(now, message)))
        rejected = Rejected((), known, reason, named)
        if search is None:
            together = read_together(known.gateway, named) if among else ()
            among = tuple(dict.fromkeys((*among, *(part.origin for part in together))))
            return self._start_search(version, rejected, among)
        late = parts_in_order(self._changes, search.new, known.compiled, search.changes)
        if search.hopeless and search.held.issuperset(late):
            return self._widen(search, version, rejected)
        return self._after_step(search, search.reject(rejected, late))

    def forget(self, key: Key) -> bool:
        """Process the deletion of an object. Return whether the inputs changed."""
        if self.searching:
            self._deleted.add(key)
        return self.verdicts.forget(key)

    def abort(self) -> bool:
        """End a search without a result. Return whether the inputs changed."""
        if not self.searching:
            return False
        if self.retrying:
            self.verdicts.resume()
        self._end_search()
        return True

    def _end_search(self) -> None:
        if self.searching:
            self._search = self._since = None
            self.verdicts.settle()

    def _concerns(self, among: Sequence[Origin]) -> bool:
        return self._search is None or self._search.concerns(among)

    def _start_search(self, version: str, rejected: Rejected, among: tuple[Origin, ...]) -> bool:
        self._search = Search.start(
            version, rejected, self._scopes(rejected, among), among, self._younger(rejected.version)
        )
        if self._search is None:
            self._abandoned.append(version)
            return False
        self._since = None
        return True

    def _scopes(self, rejected: Rejected, among: tuple[Origin, ...]) -> Iterator[SearchScope]:
        """Yield where the cause of a rejection may be. ``among``: see :meth:`rejected`."""
        version, good = rejected.version, self.versions.good
        ports = {entry.port for entry in version.gateway.listeners}
        ports |= {entry.port for entry in version.gateway.l4_listeners}
        named = tuple(part for part in rejected.named if part.origin.port in ports)
        now, serving = version.compiled, self._serving
        if good is not None:
            parts = parts_in_order(self._changes, good.gateway, version.gateway, good.changes)
            yield SearchScope(good.gateway, (*parts, *named))
            yield from credential_scopes(now, rejected.named, _served, alone=True)
            scope = named_scope(now, rejected.named, _served)
            yield msgspec.structs.replace(scope, parts=(*scope.parts, *named))
            return
        # An Envoy that serves tests nothing but scopes.
        trials = self._trials and not (serving and any(not origin.part for origin in among))
        yield from self._order.scopes(
            now, rejected.named, named, serving=serving, trials=trials, whole=not among
        )

    def _younger(self, version: Version) -> Younger:
        """Return the function that returns what changed after parts of a search."""
        good = self.versions.good
        if good is None:
            return partial(self._order.after, version.changes)
        return lambda _, new, parts: parts_after(self._changes, good, new, parts)

    def _widen(self, search: Search, version: str, rejected: Rejected) -> bool:
        """Continue a search whose parts do not have the cause. Return that the inputs changed."""
        self._since = None
        named = tuple(dict.fromkeys((*search.rejected.named, *rejected.named)))
        if len(search.rejected.named) < len(named) <= MAX_NAMED:
            first = msgspec.structs.replace(search.rejected, named=named, reason=rejected.reason)
            self._search = search.again(first, self._scopes(first, search.among))
            return True
        self._search = search.widened()
        if self._search is None:
            self._abandoned.extend((search.version, version) if search.version else ())
            self.verdicts.settle()
        return True

    def _after_step(self, search: Search, cause: Rejected | None) -> bool:
        self._since = None
        if cause is not None:
            self._blame(search, cause)
        if self.retrying:
            parts = search.rejected.parts
            self.verdicts.accept(part for part in parts if part not in search.held)
        if not search.finished:
            return True
        self._end_search()
        if search.version and search.held and not search.successful:
            # An instance accepts in a trial what it rejects when it serves it.
            self._search = search.widened() if search.scope.trial else None
            if self._search is None:
                self._abandoned.append(search.version)
        return True

    def _blame(self, search: Search, cause: Rejected) -> None:
        """Leave out parts with which a configuration was rejected, and without which it was not."""
        rejected, newest = cause.version, self.versions.newest
        present = None
        in_match = {part.origin for part in cause.named if part.in_match}
        for part in cause.parts:
            if not part.origin.kind and part not in cause.named:
                # Only NGINX's own words tell that a port is the cause, and not what is behind it.
                continue
            key = gateway_api.key_of(part.origin)
            routes = rejected_routes(part, search.scope.good, rejected.compiled)
            if routes and newest is not None and newest.compiled is not rejected.compiled:
                present = present or frozenset(configured_routes(newest.compiled))
                stale = present.isdisjoint(routes)
            else:
                stale = not is_route(part) and self._changes.changed_since(key, rejected.changes)
            if stale or key in self._deleted:
                search.repeat((part,))
                continue
            rejected_part = msgspec.structs.replace(part, in_match=part.origin in in_match)
            done = self.verdicts.leave_out(rejected_part, routes, rejected.compiled, cause.reason)
            search.successful |= done
            if not search.scope.precise:
                # It is tried again when a version is known to be good.
                self._unsure[part.origin] = (True, cause.reason)
            if routes:
                # Without it, a policy that was left out may be accepted.
                self.verdicts.hurry_objects()


def _served(_: Key) -> StatusHistory:
    """Return the history of an object that a version which is known to be good may have."""
    return StatusHistory.SERVED
