"""Conflicts between listeners of the same port."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import PROTOCOLS
from gatehouse.compiler.frontends.shortened_lists import shortened_list
from gatehouse.incremental.query import Key

_PROTOCOL_CONFLICT = (
    Reason.PROTOCOL_CONFLICT,
    Reason.PROTOCOL_CONFLICT_REFUSED,
    Reason.PROTOCOL_CONFLICT_UNSERVED,
)
_HOSTNAME_CONFLICT = (
    Reason.HOSTNAME_CONFLICT,
    Reason.HOSTNAME_CONFLICT_REFUSED,
    Reason.HOSTNAME_CONFLICT_UNSERVED,
)


MAX_NAMED_LISTENERS = 8
"""Number of other listeners that the message about a listener names."""


class ListenerEntry(msgspec.Struct, frozen=True):
    """A listener and its Gateway or ListenerSet."""

    owner: Key
    listener: gateway.ListenerSpec
    valid: bool


def conflicts(entries: Sequence[ListenerEntry]) -> list[tuple[Finding, ...]]:
    """Return the findings of each listener. ``entries`` are in order of precedence.

    All conflicting listeners of the Gateway itself lose. A listener of a ListenerSet loses to every
    earlier one that did not lose (GEP-1713).
    """
    own, accepted = _Rivals(), _Rivals()
    for entry in entries:
        if entry.valid and entry.owner[0] == "Gateway":
            own.add(entry)
    results: list[tuple[Finding, ...]] = []
    for entry in entries:
        findings: tuple[Finding, ...] = ()
        if entry.valid:
            findings = _findings(entry, own if entry.owner[0] == "Gateway" else accepted)
            if not findings:
                accepted.add(entry)
        results.append(findings)
    return results


_Place = tuple[int, str]
"""Port and transport."""


class _Rivals:
    """Listeners by what they may conflict in."""

    def __init__(self) -> None:
        self._families: defaultdict[_Place, defaultdict[str, list[ListenerEntry]]]
        self._families = defaultdict(lambda: defaultdict(list))
        self._hostnames: defaultdict[tuple[_Place, str], list[ListenerEntry]] = defaultdict(list)

    def add(self, entry: ListenerEntry) -> None:
        """Add a listener."""
        place = _place(entry)
        self._families[place][PROTOCOLS[entry.listener.protocol].family].append(entry)
        self._hostnames[place, entry.listener.hostname.lower()].append(entry)

    def of_other_families(self, entry: ListenerEntry) -> list[ListenerEntry]:
        """Return the listeners of its port whose protocol cannot share it."""
        own = PROTOCOLS[entry.listener.protocol].family
        families = self._families[_place(entry)].items()
        return [other for family, others in families if family != own for other in others]

    def of_same_hostname(self, entry: ListenerEntry) -> list[ListenerEntry]:
        """Return the other listeners of its port with its hostname."""
        others = self._hostnames[_place(entry), entry.listener.hostname.lower()]
        return [other for other in others if other is not entry]


def _place(entry: ListenerEntry) -> _Place:
    return entry.listener.port, PROTOCOLS[entry.listener.protocol].transport


def _findings(entry: ListenerEntry, rivals: _Rivals) -> tuple[Finding, ...]:
    where = f"listener {entry.listener.name}: port {entry.listener.port}"
    if others := rivals.of_other_families(entry):
        message = f"{where}: protocol conflict with {_names(entry, others)}"
        return tuple(Finding(reason, message) for reason in _PROTOCOL_CONFLICT)
    if others := rivals.of_same_hostname(entry):
        message = f"{where}: hostname conflict with {_names(entry, others)}"
        return tuple(Finding(reason, message) for reason in _HOSTNAME_CONFLICT)
    return ()


def _names(entry: ListenerEntry, others: Sequence[ListenerEntry]) -> str:
    names = [
        other.listener.name
        if other.owner == entry.owner
        else f"{other.owner[0]} {other.owner[1]}/{other.owner[2]} {other.listener.name}"
        for other in others
    ]
    return shortened_list(names, MAX_NAMED_LISTENERS)
