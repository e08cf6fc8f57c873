"""Difference between desired and observed servers of an upstream. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.dataplane.nginx_plus import (
    HTTP_ONLY_PARAMETERS,
    IMMUTABLE_PARAMETERS,
    PlusServer,
    Upstream,
    differing_parameters,
)
from gatehouse.transports.nginx_plus.client import Peer

_STATES = frozenset({"down", "drain"})
"""The API keeps only one of these, so a request must contain both."""


class ObservedServers(msgspec.Struct, frozen=True):
    """Observed servers of an upstream."""

    servers: tuple[PlusServer, ...] = ()
    """Shared with the desired upstream if equal, to save memory with many hosts."""
    ids: tuple[int, ...] = ()
    """IDs of the servers, in the same order."""

    def matches(self, peers: Iterable[Peer]) -> bool:
        """Return whether an overview shows the same servers, as far as it shows parameters."""
        observed = (
            (number, server.server, server.weight, server.backup, server.down, server.drain)
            for number, server in zip(self.ids, self.servers, strict=True)
        )
        return sorted(observed) == sorted(peer.identity for peer in peers)


class ServerChange(msgspec.Struct, frozen=True):
    """Parameters of a server to change."""

    id: int
    server: PlusServer
    """The server after the change."""
    fields: Mapping[str, Any]


class RequestPlan(msgspec.Struct, frozen=True):
    """Requests to send, in this order."""

    add: tuple[PlusServer, ...] = ()
    change: tuple[ServerChange, ...] = ()
    remove: tuple[int, ...] = ()
    leaving: Mapping[int, float] = {}
    """Drained servers that will be removed, with the time at which draining began."""
    later: float | None = None
    """Time at which the next of them is due."""

    @property
    def uses_ids(self) -> bool:
        """True if the plan refers to existing servers by ID."""
        return bool(self.change or self.remove)

    @property
    def empty(self) -> bool:
        """True if there is nothing to do now."""
        return not (self.add or self.change or self.remove)


def plan_requests(
    desired: Upstream,
    known: ObservedServers,
    *,
    drain: float,
    leaving: Mapping[int, float],
    now: float,
) -> RequestPlan:
    """Compare desired and observed servers.

    ``leaving`` is that of the last plan. ``drain`` is the drain time in seconds, 0 for none.
    """
    addresses: set[str] = set()
    changes: list[ServerChange] = []
    surplus: list[tuple[int, PlusServer]] = []
    by_address = desired.by_address
    for server, number in zip(known.servers, known.ids, strict=True):
        target = by_address.get(server.server)
        if target is None or server.server in addresses:
            surplus.append((number, server))
        elif target is server:
            addresses.add(server.server)
        else:
            names = differing_parameters(target, server)
            if names & IMMUTABLE_PARAMETERS:
                surplus.append((number, server))
                continue
            addresses.add(server.server)
            if names:
                changes.append(ServerChange(number, target, _fields(desired, target, names)))
    add = tuple(candidate for candidate in desired.servers if candidate.server not in addresses)
    remove, draining = _plan_removals(desired, surplus, changes, by_address, drain, leaving, now)
    later = min(draining.values()) + drain if draining else None
    return RequestPlan(add, tuple(changes), tuple(remove), draining, later)


def _plan_removals(
    desired: Upstream,
    surplus: Sequence[tuple[int, PlusServer]],
    changes: list[ServerChange],
    by_address: Mapping[str, PlusServer],
    drain: float,
    leaving: Mapping[int, float],
    now: float,
) -> tuple[list[int], dict[int, float]]:
    """Return the servers to remove now and those to drain first; add the changes for draining."""
    remove: list[int] = []
    draining: dict[int, float] = {}
    state = "drain" if desired.name.context == "http" else "down"
    for number, server in surplus:
        # A duplicate of a desired address gets no traffic that the first entry does not.
        if drain <= 0 or server.server in by_address:
            remove.append(number)
        elif number not in leaving and not (server.drain or server.down):
            drained = msgspec.structs.replace(_plain(server), **{state: True})
            changes.append(
                ServerChange(number, drained, _fields(desired, drained, frozenset({state})))
            )
            draining[number] = now
        elif leaving.get(number, now) + drain <= now:
            remove.append(number)
        else:
            draining[number] = leaving.get(number, now)
    return remove, draining


def _fields(desired: Upstream, server: PlusServer, names: Iterable[str]) -> Mapping[str, Any]:
    """Return parameters by name, including defaults. The API keeps omitted parameters unchanged."""
    selected = set(names)
    if selected & _STATES:
        selected |= _STATES
    if desired.name.context == "stream":
        selected -= HTTP_ONLY_PARAMETERS
    return {
        name: getattr(server, name) for name in PlusServer.__struct_fields__ if name in selected
    }


def _plain(server: PlusServer) -> PlusServer:
    """Return a plain :class:`PlusServer` without the attributes of subclasses."""
    return PlusServer(**{name: getattr(server, name) for name in PlusServer.__struct_fields__})


def share_servers(desired: Upstream, known: ObservedServers) -> ObservedServers:
    """Return an equal state that shares equal servers with the desired upstream.

    The plan for ``known`` must be empty, so that all desired servers are present.
    """
    if known.servers is desired.servers:
        return known
    by_address = desired.by_address
    if len(known.servers) == len(desired.servers):
        ids = {
            server.server: number for server, number in zip(known.servers, known.ids, strict=True)
        }
        return ObservedServers(
            desired.servers, tuple(ids[server.server] for server in desired.servers)
        )
    return ObservedServers(
        tuple(by_address.get(server.server, server) for server in known.servers), known.ids
    )
