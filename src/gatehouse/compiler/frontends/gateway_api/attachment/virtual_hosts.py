"""Every route's attachments, folded into the names of each port."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import (
    attachments,
    routes_of,
)
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import Attachment, Listener
from gatehouse.compiler.frontends.gateway_api.listeners import listeners as listening
from gatehouse.incremental.grouping import Grouping, group_by
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

V = TypeVar("V")

HTTP = ("HTTP", "HTTPS")
STREAMS = ("TLS", "TCP", "UDP")

Name = tuple[int, str, str, Listener]
"""Port, protocol, hostname, and the listener that it belongs to."""


class HostKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A hostname of a port, and who serves it: all that identifies what is served there."""

    port: int
    protocol: str
    hostname: str
    listener: Listener
    routes: tuple[Key, ...]
    gateway: Key
    """Whose settings hold."""


class ListenerInfo(msgspec.Struct, frozen=True):
    """What the names of a listener need to know of it."""

    hostname: str
    certificates: tuple[str, ...]


def attached(ask: Ask, key: Key) -> Table[Key, tuple[Attachment, ...]]:
    """Give what became of the parentRefs of each route that names a Gateway or its sets."""
    return ask.map(attachments, ask(routes_of, key))


def virtual_hosts(ask: Ask, key: Key) -> Table[Name, HostKey]:
    """Give the virtual hosts of a Gateway."""
    return _hosts(ask, key, HTTP)


def stream_hosts(ask: Ask, key: Key) -> Table[Name, HostKey]:
    """Give the names of TLS, TCP and UDP ports of a Gateway."""
    return _hosts(ask, key, STREAMS)


def served(ask: Ask, which: tuple[Key, tuple[str, ...]]) -> tuple[listening.ListenerSpec, ...]:
    """Give the listeners of a Gateway that are served by one of the protocols."""
    return tuple(
        state.shape
        for state in ask(listening.listeners, which[0])
        if state.served and state.shape.protocol in which[1]
    )


def serving(ask: Ask, which: tuple[Key, Listener]) -> ListenerInfo:
    """Give what is to be known of one listener of a Gateway."""
    for state in ask(listening.listeners, which[0]):
        if state.shape.key == which[1]:
            names = sorted(entry.name for entry in state.certificates)
            return ListenerInfo(state.shape.hostname, tuple(names))
    return ListenerInfo("", ())


def ports(ask: Ask, which: tuple[Key, tuple[str, ...]]) -> tuple[tuple[int, str], ...]:
    """Give the ports that a Gateway serves by some protocols, each with its own, sorted."""
    return tuple(sorted({(shape.port, shape.protocol) for shape in ask(served, which)}))


def of_port(hosts: Table[Name, V], port: int, protocol: str) -> Table[Name, V]:
    """Give what of a table is about one port."""
    first: Any = (port, protocol)
    end: Any = (port, protocol + "\0")
    return hosts.between(first, end)


def _hosts(ask: Ask, key: Key, protocols: tuple[str, ...]) -> Table[Name, HostKey]:
    """Give the names of every port; a listener's own hostname is always one."""
    wanted = ask(served, (key, protocols))
    found = ask(_named, (key, frozenset(shape.key for shape in wanted))).groups
    own = [(each.port, each.protocol, each.hostname, each.key) for each in wanted]
    return found.updated({name: _host(key, name, ()) for name in own if name not in found})


Named = Grouping[tuple[Key, frozenset[Listener]], Key, tuple[Attachment, ...], Name, HostKey]


def _named(ask: Ask, which: tuple[Key, frozenset[Listener]]) -> Named:
    """Give the names that routes have in some listeners of a Gateway."""
    return group_by(ask.last(), ask(attached, which[0]), _names, _made, which)


def _names(
    which: tuple[Key, frozenset[Listener]], _: Key, found: Iterable[Attachment]
) -> Iterator[Name]:
    for attachment in found:
        if attachment.gateway == which[0]:
            for place in attachment.places:
                if place.listener in which[1]:
                    yield (place.port, place.protocol, place.hostname, place.listener)


def _made(which: tuple[Key, object], name: Name, routes: tuple[Key, ...]) -> HostKey:
    return _host(which[0], name, routes)


def _host(gateway: Key, name: Name, routes: tuple[Key, ...]) -> HostKey:
    return HostKey(*name, routes, gateway)
