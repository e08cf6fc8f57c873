"""Conflicts between listeners of the same port."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import PROTOCOLS
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
    results: list[tuple[Finding, ...]] = []
    accepted: list[ListenerEntry] = []
    for entry in entries:
        if not entry.valid:
            results.append(())
            continue
        if entry.owner[0] == "Gateway":
            rivals = [other for other in entries if other.owner == entry.owner]
            rivals = [other for other in rivals if other is not entry and other.valid]
        else:
            rivals = accepted
        findings = _findings(entry, rivals)
        if not findings:
            accepted.append(entry)
        results.append(findings)
    return results


def _findings(entry: ListenerEntry, rivals: Sequence[ListenerEntry]) -> tuple[Finding, ...]:
    own, protocol = entry.listener, PROTOCOLS[entry.listener.protocol]
    sharing = [
        other
        for other in rivals
        if other.listener.port == own.port
        and PROTOCOLS[other.listener.protocol].transport == protocol.transport
    ]
    where = f"listener {own.name}: port {own.port}"
    other_protocol = [
        o for o in sharing if PROTOCOLS[o.listener.protocol].family != protocol.family
    ]
    if other_protocol:
        message = f"{where}: protocol conflict with {_names(entry, other_protocol)}"
        return tuple(Finding(reason, message) for reason in _PROTOCOL_CONFLICT)
    same = [o for o in sharing if o.listener.hostname.lower() == own.hostname.lower()]
    if same:
        message = f"{where}: hostname conflict with {_names(entry, same)}"
        return tuple(Finding(reason, message) for reason in _HOSTNAME_CONFLICT)
    return ()


def _names(entry: ListenerEntry, others: Sequence[ListenerEntry]) -> str:
    return ", ".join(
        other.listener.name
        if other.owner == entry.owner
        else f"{other.owner[0]} {other.owner[1]}/{other.owner[2]} {other.listener.name}"
        for other in others
    )
