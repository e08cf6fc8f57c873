"""Hostname conflicts between HTTPRoutes and GRPCRoutes of one listener: the older route wins.

GRPCRoute, ``spec.hostnames``: of two routes of the two kinds with intersecting hostnames exactly
one is accepted: the oldest, then the first by ``namespace/name``, then by kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.attachment.named_routes import routes_of
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import (
    Attachment,
    ListenerHostname,
    ListenerKey,
    parent_results,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

_KINDS = ("GRPCRoute", "HTTPRoute")


def attachments(ask: Ask, key: Key) -> tuple[Attachment, ...]:
    """Return the result of each parentRef of a route that refers to a managed Gateway."""
    results = ask(parent_results, key)
    if key[0] not in _KINDS:
        return results
    return tuple(
        _without(result, ask.entry(lost_hostnames, result.gateway, key=key) or {})
        for result in results
    )


def lost_hostnames(ask: Ask, gateway: Key) -> Table[Key, dict[ListenerKey, Key]]:
    """Return the listeners that each route lost, with the winning route."""
    lost: dict[Key, dict[ListenerKey, Key]] = {}
    taken: dict[tuple[ListenerKey, str], dict[str, Key]] = {}
    for key in sorted(_conflicting(ask, gateway), key=lambda key: _age(ask, key)):
        other = _KINDS[1 - _KINDS.index(key[0])]
        for listener, names in _requested_hostnames(ask, key, gateway).items():
            rival = _holder(taken.get((listener, other), {}), names)
            if rival is not None:
                lost.setdefault(key, {})[listener] = rival
            else:
                taken.setdefault((listener, key[0]), {}).update(dict.fromkeys(names, key))
    return Table(lost)


def _conflicting(ask: Ask, gateway: Key) -> set[Key]:
    """Return the routes that may conflict.

    These are all routes of the rarer kind, and those of the other kind that share a hostname with
    them. Usually one kind has few routes, and thousands of the other need not be examined.
    """
    everyone = ask(routes_of, gateway)
    kinds = {kind: everyone.between((kind,), (kind + "\0",)) for kind in _KINDS}
    if not all(kinds.values()):
        return set()
    other, rarer = sorted(_KINDS, key=lambda kind: -len(kinds[kind]))
    requests = ask(_requests, gateway)
    conflicting = set(kinds[rarer])
    for key in kinds[rarer]:
        for listener, names in _requested_hostnames(ask, key, gateway).items():
            for name in names:
                conflicting.update(requests.get((other, listener, name, WITHIN), ()))
                for wider in hostnames.wider(name):
                    conflicting.update(requests.get((other, listener, wider, EXACT), ()))
    return conflicting


EXACT, WITHIN = "exact", "within"

HostnameRequest = tuple[str, ListenerKey, str, str]
"""Route kind, listener, hostname; ``EXACT`` for that hostname, ``WITHIN`` for a hostname within it.
"""


def _requests(ask: Ask, gateway: Key) -> Table[HostnameRequest, tuple[Key, ...]]:
    """Return the routes that request each hostname of a Gateway's listeners."""
    routes = ask.map(parent_results, ask(routes_of, gateway))
    return ask.group_by(routes, partial(_requests_of, gateway))


def _requests_of(
    gateway: Key, key: Key, results: tuple[Attachment, ...]
) -> Iterator[HostnameRequest]:
    for place in _listener_hostnames(gateway, results):
        yield (key[0], place.listener, place.hostname, EXACT)
        for name in (place.hostname, *hostnames.wider(place.hostname)):
            yield (key[0], place.listener, name, WITHIN)


def _requested_hostnames(ask: Ask, key: Key, gateway: Key) -> dict[ListenerKey, set[str]]:
    hostnames_by_listener: dict[ListenerKey, set[str]] = {}
    for place in _listener_hostnames(gateway, ask(parent_results, key)):
        hostnames_by_listener.setdefault(place.listener, set()).add(place.hostname)
    return hostnames_by_listener


def _listener_hostnames(gateway: Key, results: Iterable[Attachment]) -> Iterator[ListenerHostname]:
    return (
        place
        for result in results
        if result.gateway == gateway
        for place in result.listener_hostnames
    )


def _holder(taken: dict[str, Key], names: set[str]) -> Key | None:
    """Return the route that has a conflicting hostname.

    Most hostnames are exact and are looked up directly.
    """
    for name in sorted(names):
        if name in taken:
            return taken[name]
        for other, holder in taken.items():
            wild = not name or name.startswith("*") or not other or other.startswith("*")
            if wild and hostnames.intersect(name, other) is not None:
                return holder
    return None


def _without(attachment: Attachment, lost: dict[ListenerKey, Key]) -> Attachment:
    listeners = tuple(listener for listener in attachment.listeners if listener not in lost)
    if len(listeners) == len(attachment.listeners):
        return attachment
    listener_hostnames = tuple(
        listener_hostname
        for listener_hostname in attachment.listener_hostnames
        if listener_hostname.listener not in lost
    )
    if listeners:
        return Attachment(
            attachment.index, attachment.parent, attachment.gateway, listener_hostnames, listeners
        )
    holder = next(lost[listener] for listener in attachment.listeners)
    message = f"hostnames: conflict with the older {holder[0]} {holder[1]}/{holder[2]}"
    refusal = Finding(Reason.HOSTNAME_CONFLICT_REFUSED, f"{attachment.where}: {message}")
    return Attachment(attachment.index, attachment.parent, attachment.gateway, refusal=refusal)


def _age(ask: Ask, key: Key) -> tuple[str, ...]:
    route = ask.read(key)
    return (route.metadata.creation_timestamp, key[1], key[2], key[0])
