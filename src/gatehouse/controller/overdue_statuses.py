"""Statuses of routes that are written although some data planes do not serve them yet. No I/O.

Such a status says in its message which instances are waited for. It is written again without these
words as soon as all serve it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import msgspec

from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.gateway_api.status.types import ParentStatus, RouteStatus
from gatehouse.controller.outputs import published_name
from gatehouse.incremental.query import Key

NOT_SERVED_YET = "not served yet: waiting for"
"""Start of the words in the message of a good condition."""

Waiting = Callable[[Key, int], tuple[int, int]]
"""Returns how many instances of a Gateway have not confirmed a publication, of how many."""


def counted(count: Callable[[str, int], tuple[int, int]], gateways: Container[Key]) -> Waiting:
    """Return a function that counts each publication once.

    ``count`` gets the name of a Gateway. No instance of others than ``gateways`` is waited for.
    """
    known: dict[tuple[Key, int], tuple[int, int]] = {}

    def waiting(gateway: Key, number: int) -> tuple[int, int]:
        if gateway not in gateways:
            return 0, 0
        if (gateway, number) not in known:
            known[gateway, number] = count(published_name(gateway), number)
        return known[gateway, number]

    return waiting


class _Overdue(msgspec.Struct, frozen=True):
    status: combined.Status
    awaited: Mapping[Key, int]
    """Publications of the Gateways that do not serve the status yet."""


class OverdueStatuses:
    """The overdue statuses, by object and by Gateway."""

    def __init__(self) -> None:
        self._overdue: dict[Key, _Overdue] = {}
        self._by_gateway: dict[Key, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._overdue)

    def released(
        self, key: Key, status: combined.Status, awaited: Mapping[Key, int], waiting: Waiting
    ) -> combined.Status:
        """Return what to write for a status that is released. It replaces an earlier one.

        ``awaited``: the publications that contain it.
        """
        if key in self._overdue:
            self.discard(key)
        missing = {
            gateway: number for gateway, number in awaited.items() if waiting(gateway, number)[0]
        }
        if not missing or not isinstance(status, RouteStatus):
            return status
        self._overdue[key] = _Overdue(status, missing)
        for gateway in missing:
            self._by_gateway.setdefault(gateway, {})[key] = None
        return _with_waiting(status, missing, waiting)

    def discard(self, key: Key) -> None:
        """Drop the overdue status of an object."""
        overdue = self._overdue.pop(key, None)
        for gateway in overdue.awaited if overdue else ():
            keys = self._by_gateway[gateway]
            del keys[key]
            if not keys:
                del self._by_gateway[gateway]

    def caught_up(
        self, changed_gateways: Iterable[Key], waiting: Waiting
    ) -> Iterator[tuple[Key, combined.Status]]:
        """Remove and yield the statuses that all data planes serve now.

        ``changed_gateways``: the Gateways for which ``waiting`` may return something else.
        """
        if not self._overdue:
            return
        candidates: dict[Key, None] = {}
        for gateway in changed_gateways:
            candidates |= self._by_gateway.get(gateway, {})
        for key in candidates:
            overdue = self._overdue[key]
            if not any(waiting(gateway, number)[0] for gateway, number in overdue.awaited.items()):
                self.discard(key)
                yield key, overdue.status


def _with_waiting(status: RouteStatus, missing: Mapping[Key, int], waiting: Waiting) -> RouteStatus:
    parts = []
    for gateway, number in sorted(missing.items()):
        behind, total = waiting(gateway, number)
        parts.append(f"{behind} of {total} instances of Gateway {gateway[1]}/{gateway[2]}")
    text = f"; {NOT_SERVED_YET} {', '.join(parts)}"
    parents = tuple(_parent_with(parent, text) for parent in status.parents)
    return msgspec.structs.replace(status, parents=parents)


def _parent_with(parent: ParentStatus, text: str) -> ParentStatus:
    conditions = tuple(
        msgspec.structs.replace(entry, message=entry.message + text)
        if entry.type == "Accepted" and entry.status == "True"
        else entry
        for entry in parent.conditions
    )
    return msgspec.structs.replace(parent, conditions=conditions)
