"""Filter chains of an HTTPS port: groups of hostnames with the same configuration."""

from __future__ import annotations

from bisect import bisect_left
from itertools import groupby

import msgspec

from gatehouse.compiler.backends.configuration import PortHostname, all_virtual_hosts
from gatehouse.compiler.backends.source import GatewaySource
from gatehouse.compiler.ir.server_tls import ServerTls
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

Group = tuple[int, str, tuple[str, ...], ServerTls]
"""Port, hostname of the Gateway listener, certificates, TLS settings."""

_NO_TLS = ServerTls(versions=())
"""TLS settings that precede all others."""


class HttpsFilterChain(msgspec.Struct, frozen=True):
    """Hostnames of an HTTPS port that share a filter chain, with their certificates."""

    listener: str
    """Hostname of the Gateway listener."""
    certificates: tuple[str, ...]
    names: tuple[str, ...]
    number: int = 0
    """Distinguishes chains of one listener."""
    tls: ServerTls = ServerTls()


def chains(ask: Ask, gateway: GatewaySource, port: int) -> tuple[HttpsFilterChain, ...]:
    """Return the chains of a port: one per Gateway listener, if all its hostnames have the same
    certificates."""
    groups = ask(_groups, gateway).between((port, "", (), _NO_TLS), (port + 1, "", (), _NO_TLS))
    result = []
    for listener, entries in groupby(groups.items(), lambda entry: entry[0][1]):
        # The hostname of the listener covers all hostnames with its certificates.
        ordered = sorted((*order, group) for group, order in entries)
        for number, (_, _, group) in enumerate(ordered):
            hostnames: tuple[str, ...] = (listener,)
            if number:
                members = ask.entry(_members, gateway, key=group) or ()
                hostnames = tuple(hostname for _, hostname in members)
            result.append(HttpsFilterChain(listener, group[2], hostnames, number, group[3]))
    return tuple(result)


def _groups(ask: Ask, gateway: GatewaySource) -> Table[Group, tuple[bool, str]]:
    return ask.derive(ask(_members, gateway), _order)


def _members(ask: Ask, gateway: GatewaySource) -> Table[Group, tuple[PortHostname, ...]]:
    return ask.group_by(
        ask(all_virtual_hosts, gateway),
        lambda key, host: [(key[0], host.listener, host.certificates, host.tls)],
    )


def _order(group: Group, keys: tuple[PortHostname, ...]) -> tuple[bool, str]:
    """Return the sort key of a group: whether it lacks the listener's own hostname, and its first
    hostname."""
    own = (group[0], group[1])
    index = bisect_left(keys, own)
    return keys[index : index + 1] != (own,), keys[0][1]
