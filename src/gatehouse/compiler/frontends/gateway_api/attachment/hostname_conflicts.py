"""Names that an HTTPRoute and a GRPCRoute both want of one listener: the older route has them.

GRPCRoute, ``spec.hostnames``: of two routes of the two kinds whose names intersect exactly one is
accepted, the oldest, then the first by ``namespace/name`` (then by kind).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import (
    Attachment,
    Listener,
    ListenerHostname,
    parent_results,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners.listener_sets import owners
from gatehouse.incremental.grouping import Grouping, Union, group_by, union
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

KINDS = ("GRPCRoute", "HTTPRoute")


def attachments(ask: Ask, key: Key) -> tuple[Attachment, ...]:
    """Give what became of each parentRef of a route that names something of ours."""
    found = ask(parent_results, key)
    if key[0] not in KINDS:
        return found
    return tuple(_without(each, ask(lost_hostnames, each.gateway).get(key, {})) for each in found)


def routes_of(ask: Ask, key: Key) -> Table[Key, Key]:
    """Give the routes that name a Gateway or one of its ListenerSets."""
    return ask(_routes_of, key).whole


def _routes_of(ask: Ask, key: Key) -> Union[Key, Key]:
    named = tuple(ask.read(("@routes", *owner)) for owner in ask(owners, key))
    return union(ask.last(), named)


def lost_hostnames(ask: Ask, gateway: Key) -> dict[Key, dict[Listener, Key]]:
    """Give, for each route that must go without a listener, to which other route it lost it."""
    found: dict[Key, dict[Listener, Key]] = {}
    taken: dict[tuple[Listener, str], dict[str, Key]] = {}
    for key in sorted(_contesting(ask, gateway), key=lambda key: _age(ask, key)):
        other = KINDS[1 - KINDS.index(key[0])]
        for listener, names in _wanted(ask, key, gateway).items():
            rival = _holder(taken.get((listener, other), {}), names)
            if rival is not None:
                found.setdefault(key, {})[listener] = rival
            else:
                taken.setdefault((listener, key[0]), {}).update(dict.fromkeys(names, key))
    return found


def _contesting(ask: Ask, gateway: Key) -> set[Key]:
    """Give the routes of the kind of which there are fewer, and the others that want their names.

    As a rule there are few of one kind, and thousands of the other need no looking at.
    """
    everyone = ask(routes_of, gateway)
    kinds = {kind: everyone.between((kind,), (kind + "\0",)) for kind in KINDS}
    if not all(kinds.values()):
        return set()
    other, fewer = sorted(KINDS, key=lambda kind: -len(kinds[kind]))
    wanting = ask(_wanting, gateway).groups
    found = set(kinds[fewer])
    for key in kinds[fewer]:
        for listener, names in _wanted(ask, key, gateway).items():
            for name in names:
                found.update(wanting.get((other, listener, name, WITHIN), ()))
                for wider in hostnames.wider(name):
                    found.update(wanting.get((other, listener, wider, AS_IT_IS), ()))
    return found


AS_IT_IS, WITHIN = "as it is", "within"

Wanting = tuple[str, Listener, str, str]
"""A kind, a listener, a hostname, and whether it is that itself or a name within it."""


def _wanting(
    ask: Ask, gateway: Key
) -> Grouping[Key, Key, tuple[Attachment, ...], Wanting, tuple[Key, ...]]:
    """Give who wants what of the listeners of a Gateway."""
    routes = ask.map(parent_results, ask(routes_of, gateway))
    return group_by(ask.last(), routes, _wants, _themselves, gateway)


def _wants(gateway: Key, key: Key, found: tuple[Attachment, ...]) -> Iterator[Wanting]:
    for place in _places(gateway, found):
        yield (key[0], place.listener, place.hostname, AS_IT_IS)
        for name in (place.hostname, *hostnames.wider(place.hostname)):
            yield (key[0], place.listener, name, WITHIN)


def _themselves(_: Key, __: Wanting, routes: tuple[Key, ...]) -> tuple[Key, ...]:
    return routes


def _wanted(ask: Ask, key: Key, gateway: Key) -> dict[Listener, set[str]]:
    found: dict[Listener, set[str]] = {}
    for place in _places(gateway, ask(parent_results, key)):
        found.setdefault(place.listener, set()).add(place.hostname)
    return found


def _places(gateway: Key, found: Iterable[Attachment]) -> Iterator[ListenerHostname]:
    return (place for each in found if each.gateway == gateway for place in each.places)


def _holder(taken: dict[str, Key], names: set[str]) -> Key | None:
    """Give the route that has one of the names; most are exact, and looked up at once."""
    for name in sorted(names):
        if name in taken:
            return taken[name]
        for other, holder in taken.items():
            wild = not name or name.startswith("*") or not other or other.startswith("*")
            if wild and hostnames.intersect(name, other) is not None:
                return holder
    return None


def _without(attachment: Attachment, lost: dict[Listener, Key]) -> Attachment:
    listeners = tuple(each for each in attachment.listeners if each not in lost)
    if len(listeners) == len(attachment.listeners):
        return attachment
    places = tuple(each for each in attachment.places if each.listener not in lost)
    if listeners:
        return Attachment(
            attachment.index, attachment.parent, attachment.gateway, places, listeners
        )
    holder = next(lost[each] for each in attachment.listeners)
    message = f"hostnames: {holder[0]} {holder[1]}/{holder[2]}, which is older, has a name of it"
    said = Finding(Reason.HOSTNAME_CONFLICT_REFUSED, f"parentRefs[{attachment.index}]: {message}")
    return Attachment(attachment.index, attachment.parent, attachment.gateway, refusal=said)


def _age(ask: Ask, key: Key) -> tuple[str, ...]:
    found = ask.read(key)
    return (found.metadata.creation_timestamp, key[1], key[2], key[0])
