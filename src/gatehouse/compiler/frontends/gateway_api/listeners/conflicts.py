"""Listeners that cannot be served beside each other: which of them lose."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import PROTOCOLS
from gatehouse.incremental.query import Key


class Entry(msgspec.Struct, frozen=True):
    """A listener and whose it is."""

    owner: Key
    listener: gateway.Listener
    valid: bool


def conflicts(entries: Sequence[Entry]) -> list[tuple[Finding, ...]]:
    """Give the findings of each listener; ``entries`` are in the order of their precedence.

    Of the Gateway's own listeners that are indistinct all lose; one of a ListenerSet loses to
    every one before it that did not lose itself (GEP-1713).
    """
    found: list[tuple[Finding, ...]] = []
    standing: list[Entry] = []
    for entry in entries:
        if not entry.valid:
            found.append(())
            continue
        if entry.owner[0] == "Gateway":
            rivals = [other for other in entries if other.owner == entry.owner]
            rivals = [other for other in rivals if other is not entry and other.valid]
        else:
            rivals = standing
        said = _said(entry, rivals)
        if not said:
            standing.append(entry)
        found.append(said)
    return found


def _said(entry: Entry, rivals: Sequence[Entry]) -> tuple[Finding, ...]:
    own, protocol = entry.listener, PROTOCOLS[entry.listener.protocol]
    sharing = [
        other
        for other in rivals
        if other.listener.port == own.port
        and PROTOCOLS[other.listener.protocol].transport == protocol.transport
    ]
    where = f"listener {own.name}: port {own.port}"
    foreign = [o for o in sharing if PROTOCOLS[o.listener.protocol].family != protocol.family]
    if foreign:
        message = f"{where} has another protocol in {_names(entry, foreign)}"
        return (
            Finding(Reason.PROTOCOL_CONFLICT, message),
            Finding(Reason.PROTOCOL_CONFLICT_REFUSED, message),
            Finding(Reason.PROTOCOL_CONFLICT_UNSERVED, message),
        )
    same = [o for o in sharing if o.listener.hostname.lower() == own.hostname.lower()]
    if same:
        message = f"{where} and hostname are those of {_names(entry, same)}"
        return (
            Finding(Reason.HOSTNAME_CONFLICT, message),
            Finding(Reason.HOSTNAME_CONFLICT_REFUSED, message),
            Finding(Reason.HOSTNAME_CONFLICT_UNSERVED, message),
        )
    return ()


def _names(entry: Entry, others: Sequence[Entry]) -> str:
    return ", ".join(
        other.listener.name
        if other.owner == entry.owner
        else f"{other.owner[0]} {other.owner[1]}/{other.owner[2]} {other.listener.name}"
        for other in others
    )
