"""Order of changes that a controller has not seen, and the scopes of its first search. No I/O.

A new controller takes the order from what survives an earlier one: statuses tell what data planes
serve, and the API server stores when an object changed. So of two objects that fail together, the
one is left out that data planes do not serve; if they serve both, the one that changed last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.assumed_good import (
    SearchScope,
    all_parts,
    assumed_scopes,
    credential_scopes,
    named_scope,
    small_scopes,
)
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.held_back import is_route
from gatehouse.controller.part_order import (
    Parts,
    client_authorities,
    parts_in_order,
    read_together,
)
from gatehouse.controller.reduced_gateways import empty_gateway
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.incremental.query import Key


def last_change(raw: Mapping[str, Any] | None) -> str:
    """Return when what an object desires changed last (RFC 3339); empty if it does not tell.

    Changes of its status and of its metadata do not count.
    """
    metadata = (raw or {}).get("metadata") or {}
    times = [
        entry.get("time") or ""
        for entry in metadata.get("managedFields") or ()
        if (entry.get("fieldsV1") or {}).keys() - {"f:metadata", "f:status"}
    ]
    return max([metadata.get("creationTimestamp") or "", *times])


class HistoryOrder:
    """The order of parts for a controller that has not seen their changes.

    Routes are before other objects. Then, that of which data planes serve more is before that of
    which they serve less. Of equal ones, what changed first is before what changed later.
    """

    def __init__(
        self,
        changes: ChangeLog,
        history: Callable[[Key], StatusHistory],
        changed_at: Callable[[Key], str],
    ) -> None:
        """``changed_at`` returns when an object changed last; empty if that is not known. The
        changes that this controller has seen decide about those of the same time."""
        self._changes, self._history, self._changed_at = changes, history, changed_at

    def scopes(
        self,
        rejected: ir.GatewayConfiguration,
        named: Parts,
        ports: Parts,
        *,
        serving: bool,
        trials: bool,
        whole: bool,
    ) -> Iterator[SearchScope]:
        """Yield where the cause of a rejection may be, the most suspect objects first.

        ``named``, ``ports``: parts and ports that a message names. ``serving``, ``trials``: an
        instance serves a configuration, takes trials. ``whole``: it rejected all of it, so that it
        also goes on serving everything if it rejects a step.
        """
        in_order = partial(self._sorted, rejected)
        alone = serving and not trials
        together = named if alone else read_together(rejected, named)
        for scope in credential_scopes(rejected, together, self._history, alone=alone):
            yield msgspec.structs.replace(in_order(scope), trial=trials)
        suspects = self._with_younger(rejected, named, served=trials or not serving)
        scope = in_order(named_scope(rejected, suspects, self._history))
        yield msgspec.structs.replace(scope, parts=(*scope.parts, *ports), trial=trials)
        scopes = assumed_scopes(rejected, self._history, serving=serving, trials=trials)
        yield from map(in_order, scopes)
        if serving:
            # So few take no other one away that is served.
            youngest = self._youngest(rejected, credentials=whole)
            yield from small_scopes(rejected, youngest, self._history)

    def after(
        self, then: int, scope: SearchScope, new: ir.GatewayConfiguration, parts: Parts
    ) -> Parts:
        """Return the parts of a search that are after some parts, in their order.

        ``then``: number of changes before the search. Objects that changed since are among them.
        """
        place = self._place_in(new)
        last = max(map(place, parts))
        changed = parts_in_order(self._changes, scope.good, scope.view(new), then)
        late = (part for part in changed if self._changes.changed_since(_key(part), then))
        every = sorted(dict.fromkeys((*scope.parts, *late)), key=place)
        return tuple(part for part in every if place(part) > last)

    def _with_younger(
        self, gateway: ir.GatewayConfiguration, named: Parts, *, served: bool
    ) -> Parts:
        """Return what is named, and what changed after a named object; nothing if none is named.

        ``served``: include younger objects that data planes serve as they are.
        """
        objects = tuple(part for part in named if part.origin.kind and not part.credential)
        if not objects:
            return ()
        place = self._place_in(gateway)
        first = min(map(place, objects))
        younger = (
            part
            for part in all_parts(empty_gateway(gateway), gateway)
            if place(part) > first and (served or not self._is_served(part))
        )
        return (*named, *younger)

    def _youngest(self, gateway: ir.GatewayConfiguration, *, credentials: bool) -> list[Suspect]:
        """Return the objects that data planes serve, and of which it is known that they changed
        last; the youngest first. ``credentials``: and the credentials."""
        parts = all_parts(empty_gateway(gateway), gateway)
        served = (
            part if part.credential else Suspect(part.origin.whole)
            for part in parts
            if self._is_served(part) and (credentials or not part.credential)
        )
        times = {part: self._time(part) for part in served}
        known = [part for part, (changed_at, _) in times.items() if changed_at]
        return sorted(known, key=times.__getitem__, reverse=True)

    def _sorted(self, gateway: ir.GatewayConfiguration, scope: SearchScope) -> SearchScope:
        parts = tuple(sorted(scope.parts, key=self._place_in(gateway)))
        return msgspec.structs.replace(scope, parts=parts)

    def _is_served(self, part: Suspect) -> bool:
        return self._history(_key(part)) is StatusHistory.SERVED

    def _time(self, part: Suspect) -> tuple[str, int]:
        return self._changed_at(_key(part)), self._changes.last(_key(part))

    def _place_in(
        self, gateway: ir.GatewayConfiguration
    ) -> Callable[[Suspect], tuple[bool, bool, int, str, int]]:
        """Return the function that returns the place of a part of a configuration."""
        authorities = client_authorities(gateway)

        def place(part: Suspect) -> tuple[bool, bool, int, str, int]:
            last = part.credential in authorities
            return not is_route(part), last, -self._history(_key(part)), *self._time(part)

        return place


def _key(part: Suspect) -> Key:
    return gateway_api.key_of(part.origin)
