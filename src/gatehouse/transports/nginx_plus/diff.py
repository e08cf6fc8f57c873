"""What must be done so that an upstream holds what it is to hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.dataplane.nginx_plus import (
    HTTP_ONLY_PARAMETERS,
    IMMUTABLE_PARAMETERS,
    Server,
    Upstream,
    differing,
)

_STATES = frozenset({"down", "drain"})
"""Of these the API keeps one: who says one must say the other."""


class Known(msgspec.Struct, frozen=True):
    """What an upstream holds, as far as is known."""

    servers: tuple[Server, ...] = ()
    """Shared with the wanted upstream where it holds just that: hosts are many."""
    ids: tuple[int, ...] = ()
    """Of the servers, in their order."""


class Change(msgspec.Struct, frozen=True):
    """Parameters that a server is to get."""

    id: int
    server: Server
    """As it is then."""
    fields: Mapping[str, Any]


class Plan(msgspec.Struct, frozen=True):
    """What must be done, in this order."""

    add: tuple[Server, ...] = ()
    change: tuple[Change, ...] = ()
    remove: tuple[int, ...] = ()
    leaving: Mapping[int, float] = {}
    """Servers that are drained before they are removed, each with when that began."""
    later: float | None = None
    """When the next of those is due."""

    @property
    def by_number(self) -> bool:
        """Whether servers are named that are there already."""
        return bool(self.change or self.remove)

    @property
    def empty(self) -> bool:
        """Whether nothing must be done now."""
        return not (self.add or self.change or self.remove)


def plan(
    wanted: Upstream, known: Known, *, drain: float, leaving: Mapping[int, float], now: float
) -> Plan:
    """Compare. ``leaving``: what the last plan said; ``drain``: seconds, 0 for none."""
    seen: set[str] = set()
    changes: list[Change] = []
    surplus: list[tuple[int, Server]] = []
    by_address = wanted.by_address
    for server, number in zip(known.servers, known.ids, strict=True):
        asked = by_address.get(server.server)
        if asked is None or server.server in seen:
            surplus.append((number, server))
        elif asked is server:
            seen.add(server.server)
        else:
            names = differing(asked, server)
            if names & IMMUTABLE_PARAMETERS:
                surplus.append((number, server))
                continue
            seen.add(server.server)
            if names:
                changes.append(Change(number, asked, _fields(wanted, asked, names)))
    add = tuple(each for each in wanted.servers if each.server not in seen)
    remove, still = _leave(wanted, surplus, changes, by_address, drain, leaving, now)
    later = min(still.values()) + drain if still else None
    return Plan(add, tuple(changes), tuple(remove), still, later)


def _leave(
    wanted: Upstream,
    surplus: Sequence[tuple[int, Server]],
    changes: list[Change],
    by_address: Mapping[str, Server],
    drain: float,
    leaving: Mapping[int, float],
    now: float,
) -> tuple[list[int], dict[int, float]]:
    """Give what is removed now, and what is drained first; adds the changes that this takes."""
    remove: list[int] = []
    still: dict[int, float] = {}
    word = "drain" if wanted.name.context == "http" else "down"
    for number, server in surplus:
        # A second entry of a wanted address serves nobody that the first one does not.
        if drain <= 0 or server.server in by_address:
            remove.append(number)
        elif number not in leaving and not (server.drain or server.down):
            gone = msgspec.structs.replace(_plain(server), **{word: True})
            changes.append(Change(number, gone, _fields(wanted, gone, frozenset({word}))))
            still[number] = now
        elif leaving.get(number, now) + drain <= now:
            remove.append(number)
        else:
            still[number] = leaving.get(number, now)
    return remove, still


def _fields(wanted: Upstream, server: Server, names: Iterable[str]) -> Mapping[str, Any]:
    """Give parameters by name, defaults as well: what is not said stays as it is."""
    said = set(names)
    if said & _STATES:
        said |= _STATES
    if wanted.name.context == "stream":
        said -= HTTP_ONLY_PARAMETERS
    return {name: getattr(server, name) for name in Server.__struct_fields__ if name in said}


def _plain(server: Server) -> Server:
    """Give a server as such, whatever more is known of it."""
    return Server(**{name: getattr(server, name) for name in Server.__struct_fields__})


def settle(wanted: Upstream, known: Known) -> Known:
    """Give the same, with the servers of the wanted upstream where they are alike.

    For an upstream that was just planned for, so that what is wanted is there.
    """
    if known.servers is wanted.servers:
        return known
    by_address = wanted.by_address
    if len(known.servers) == len(wanted.servers):
        ids = {
            server.server: number for server, number in zip(known.servers, known.ids, strict=True)
        }
        return Known(wanted.servers, tuple(ids[each.server] for each in wanted.servers))
    return Known(tuple(by_address.get(each.server, each) for each in known.servers), known.ids)
