"""Virtual hosts of a Gateway: the attachments of all routes, grouped by port and hostname."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec

from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import (
    attachments,
)
from gatehouse.compiler.frontends.gateway_api.attachment.named_routes import routes_of
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import Attachment, ListenerKey
from gatehouse.compiler.frontends.gateway_api.listeners import listeners as listening
from gatehouse.compiler.ir.server_tls import ServerTls
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

V = TypeVar("V")

HTTP = ("HTTP", "HTTPS")
STREAM_PROTOCOLS = ("TLS", "TCP", "UDP")

HostnameKey = tuple[int, str, str, ListenerKey]
"""Port, protocol, hostname, and the listener that the hostname belongs to."""


class VirtualHostKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Identity of a virtual host: a hostname of a port with the routes that serve it."""

    port: int
    protocol: str
    hostname: str
    listener: ListenerKey
    routes: tuple[Key, ...]
    gateway: Key
    """The Gateway, whose settings apply."""


class ListenerInfo(msgspec.Struct, frozen=True):
    """Properties of a listener that its virtual hosts depend on."""

    hostname: str
    certificates: tuple[str, ...]
    tls: ServerTls = ServerTls()
    has_filters: bool = False


def route_attachments(ask: Ask, key: Key) -> Table[Key, tuple[Attachment, ...]]:
    """Return the parentRef results of each route that names a Gateway or its ListenerSets."""
    return ask.map(attachments, ask(routes_of, key))


def gateway_virtual_hosts(ask: Ask, key: Key) -> Table[HostnameKey, VirtualHostKey]:
    """Return the virtual hosts of a Gateway."""
    return _hosts(ask, key, HTTP)


def stream_hosts(ask: Ask, key: Key) -> Table[HostnameKey, VirtualHostKey]:
    """Return the hosts of a Gateway's TLS, TCP and UDP ports."""
    return _hosts(ask, key, STREAM_PROTOCOLS)


def served(
    ask: Ask, key: Key, protocols: tuple[str, ...]
) -> tuple[listening.ListenerProperties, ...]:
    """Return the served listeners of a Gateway with one of some protocols."""
    return tuple(
        state.spec
        for state in ask(listening.ordered_listeners, key)
        if state.served and state.spec.protocol in protocols
    )


def serving_properties(ask: Ask, gateway: Key, listener: ListenerKey) -> ListenerInfo:
    """Return the properties of a listener that virtual hosts depend on."""
    return ask.entry(_infos, gateway, key=listener) or ListenerInfo("", ())


def _infos(ask: Ask, gateway: Key) -> Table[ListenerKey, ListenerInfo]:
    states = ask(listening.ordered_listeners, gateway)
    return Table((state.spec.key, _info(state)) for state in states)


def _info(state: listening.ListenerState) -> ListenerInfo:
    # The first one serves clients whose SNI no certificate has.
    names = tuple(certificate.name for certificate in state.certificates)
    return ListenerInfo(state.spec.hostname, names, state.tls, state.has_filters)


def served_ports(ask: Ask, key: Key, protocols: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Return the (port, protocol) pairs of a Gateway's served listeners, sorted."""
    return tuple(sorted({(spec.port, spec.protocol) for spec in ask(served, key, protocols)}))


def tls_of_port(ask: Ask, gateway: Key, port: int, protocol: str) -> tuple[ServerTls, ...]:
    """Return the TLS settings of a Gateway's served listeners with a port and a protocol."""
    states = ask(listening.ordered_listeners, gateway)
    served = (state for state in states if state.served)
    settings = {
        state.tls for state in served if (state.spec.port, state.spec.protocol) == (port, protocol)
    }
    return tuple(sorted(settings))


def entries_of_protocol(
    hosts: Table[HostnameKey, V], port: int, protocol: str
) -> Table[HostnameKey, V]:
    """Return the entries of one port and protocol."""
    first: Any = (port, protocol)
    end: Any = (port, protocol + "\0")
    return hosts.between(first, end)


def _hosts(ask: Ask, key: Key, protocols: tuple[str, ...]) -> Table[HostnameKey, VirtualHostKey]:
    """Return the hosts of all ports; the hostname of each listener is always one."""
    specs = ask(served, key, protocols)
    hosts = ask(_named, key, frozenset(spec.key for spec in specs))
    own = [(spec.port, spec.protocol, spec.hostname, spec.key) for spec in specs]
    return hosts.updated({name: _host(key, name, ()) for name in own if name not in hosts})


def _named(
    ask: Ask, key: Key, listeners: frozenset[ListenerKey]
) -> Table[HostnameKey, VirtualHostKey]:
    """Return the hosts that routes have on some listeners of a Gateway."""

    def names(_: Key, results: Iterable[Attachment]) -> Iterator[HostnameKey]:
        for attachment in results:
            if attachment.gateway == key:
                for place in attachment.listener_hostnames:
                    if place.listener in listeners:
                        yield (place.port, place.protocol, place.hostname, place.listener)

    return ask.group_by(ask(route_attachments, key), names, partial(_host, key))


def _host(gateway: Key, name: HostnameKey, routes: tuple[Key, ...]) -> VirtualHostKey:
    return VirtualHostKey(*name, routes, gateway)
