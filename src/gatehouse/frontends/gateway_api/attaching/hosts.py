"""Every route's attachments, folded into the names of each port."""

from __future__ import annotations

import msgspec

from gatehouse.frontends.gateway_api.attaching.attachment import Place
from gatehouse.frontends.gateway_api.attaching.exclusion import attachments
from gatehouse.frontends.gateway_api.listening import listeners as listening
from gatehouse.frontends.gateway_api.listening.protocols import PROTOCOLS
from gatehouse.frontends.gateway_api.listening.sets import owners
from gatehouse.frontends.gateway_api.routing import streams
from gatehouse.query import Ask, Key


class HostKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A hostname of a port, and who serves it: all that identifies a virtual host's content."""

    port: int
    protocol: str
    hostname: str
    listener: str
    """The hostname of the listener that it belongs to."""
    routes: tuple[Key, ...]
    certificates: tuple[str, ...]
    gateway: Key
    """Whose settings hold."""


class StreamKey(msgspec.Struct, frozen=True, order=True):
    """A name of a port whose connections are forwarded as they are, and whose route serves it."""

    port: int
    protocol: str
    hostname: str
    route: Key
    """Empty: no route serves it."""
    certificates: tuple[str, ...]
    """Given: TLS ends here."""


class _Host(msgspec.Struct):
    protocol: str
    listener: str
    certificates: tuple[str, ...]
    routes: dict[Key, None]


def routes_of(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Give the routes that name a Gateway or one of its ListenerSets."""
    found = {route for owner in ask(owners, key) for route in ask.read(("@routes", *owner))}
    return tuple(sorted(found))


def places(ask: Ask, key: Key) -> tuple[tuple[Key, Place], ...]:
    """Give every place of every route of a Gateway."""
    routes = ask(routes_of, key)
    return tuple(
        (route, place)
        for route, found in zip(routes, ask.each(attachments, routes), strict=True)
        for attachment in found
        if attachment.gateway == key
        for place in attachment.places
    )


def _hosts(ask: Ask, key: Key, protocols: tuple[str, ...]) -> dict[tuple[int, str, str], _Host]:
    """Give the names of every port; a listener's own hostname is always one."""
    served: dict[tuple[Key, str], tuple[listening.Shape, tuple[str, ...]]] = {}
    found: dict[tuple[int, str, str], _Host] = {}

    def host(shape: listening.Shape, hostname: str) -> _Host:
        names = served[shape.place][1]
        made = _Host(shape.protocol, shape.hostname, names, {})
        transport = PROTOCOLS[shape.protocol].transport
        return found.setdefault((shape.port, transport, hostname), made)

    for state in ask(listening.listeners, key):
        if state.served and state.shape.protocol in protocols:
            names = tuple(sorted(entry.name for entry in state.certificates))
            served[state.shape.place] = (state.shape, names)
            host(state.shape, state.shape.hostname)
    for route, place in ask(places, key):
        if place.listener in served:
            host(served[place.listener][0], place.hostname).routes[route] = None
    return found


def virtual_hosts(ask: Ask, key: Key) -> tuple[HostKey, ...]:
    """Give the virtual hosts of a Gateway, sorted."""
    found = []
    for (port, _, hostname), host in sorted(_hosts(ask, key, ("HTTP", "HTTPS")).items()):
        served = tuple(sorted(host.routes))
        found.append(
            HostKey(port, host.protocol, hostname, host.listener, served, host.certificates, key)
        )
    return tuple(found)


def stream_hosts(ask: Ask, key: Key) -> tuple[StreamKey, ...]:
    """Give the names of TLS, TCP and UDP ports of a Gateway, sorted."""
    found = []
    for (port, _, hostname), host in sorted(_hosts(ask, key, ("TLS", "TCP", "UDP")).items()):
        route = streams.oldest(ask, tuple(host.routes)) if host.routes else ()
        found.append(StreamKey(port, host.protocol, hostname, route, host.certificates))
    return tuple(found)
