"""Virtual hosts of a Gateway: the attachments of all routes, grouped by port and hostname."""

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
"""Port, protocol, hostname, and the listener that the hostname belongs to."""


class HostKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Identity of a virtual host: a hostname of a port with the routes that serve it."""

    port: int
    protocol: str
    hostname: str
    listener: Listener
    routes: tuple[Key, ...]
    gateway: Key
    """The Gateway, whose settings apply."""


class ListenerInfo(msgspec.Struct, frozen=True):
    """Properties of a listener that its virtual hosts depend on."""

    hostname: str
    certificates: tuple[str, ...]


def attached(ask: Ask, key: Key) -> Table[Key, tuple[Attachment, ...]]:
    """Return the parentRef results of each route that names a Gateway or its ListenerSets."""
    return ask.map(attachments, ask(routes_of, key))


def virtual_hosts(ask: Ask, key: Key) -> Table[Name, HostKey]:
    """Return the virtual hosts of a Gateway."""
    return _hosts(ask, key, HTTP)


def stream_hosts(ask: Ask, key: Key) -> Table[Name, HostKey]:
    """Return the hosts of a Gateway's TLS, TCP and UDP ports."""
    return _hosts(ask, key, STREAMS)


def served(ask: Ask, which: tuple[Key, tuple[str, ...]]) -> tuple[listening.ListenerSpec, ...]:
    """Return the served listeners of a Gateway with one of the protocols ``which[1]``."""
    return tuple(
        state.spec
        for state in ask(listening.listeners, which[0])
        if state.served and state.spec.protocol in which[1]
    )


def serving(ask: Ask, which: tuple[Key, Listener]) -> ListenerInfo:
    """Return the properties of a listener that virtual hosts depend on."""
    for state in ask(listening.listeners, which[0]):
        if state.spec.key == which[1]:
            names = sorted(entry.name for entry in state.certificates)
            return ListenerInfo(state.spec.hostname, tuple(names))
    return ListenerInfo("", ())


def ports(ask: Ask, which: tuple[Key, tuple[str, ...]]) -> tuple[tuple[int, str], ...]:
    """Return the (port, protocol) pairs of a Gateway's served listeners, sorted."""
    return tuple(sorted({(spec.port, spec.protocol) for spec in ask(served, which)}))


def of_port(hosts: Table[Name, V], port: int, protocol: str) -> Table[Name, V]:
    """Return the entries of one port and protocol."""
    first: Any = (port, protocol)
    end: Any = (port, protocol + "\0")
    return hosts.between(first, end)


def _hosts(ask: Ask, key: Key, protocols: tuple[str, ...]) -> Table[Name, HostKey]:
    """Return the hosts of all ports; the hostname of each listener is always one."""
    specs = ask(served, (key, protocols))
    hosts = ask(_named, (key, frozenset(spec.key for spec in specs))).groups
    own = [(each.port, each.protocol, each.hostname, each.key) for each in specs]
    return hosts.updated({name: _host(key, name, ()) for name in own if name not in hosts})


Named = Grouping[tuple[Key, frozenset[Listener]], Key, tuple[Attachment, ...], Name, HostKey]


def _named(ask: Ask, which: tuple[Key, frozenset[Listener]]) -> Named:
    """Return the hosts that routes have on some listeners of a Gateway."""
    return group_by(ask.last(), ask(attached, which[0]), _names, _host_of, which)


def _names(
    which: tuple[Key, frozenset[Listener]], _: Key, results: Iterable[Attachment]
) -> Iterator[Name]:
    for attachment in results:
        if attachment.gateway == which[0]:
            for place in attachment.listener_hostnames:
                if place.listener in which[1]:
                    yield (place.port, place.protocol, place.hostname, place.listener)


def _host_of(which: tuple[Key, object], name: Name, routes: tuple[Key, ...]) -> HostKey:
    return _host(which[0], name, routes)


def _host(gateway: Key, name: Name, routes: tuple[Key, ...]) -> HostKey:
    return HostKey(*name, routes, gateway)
