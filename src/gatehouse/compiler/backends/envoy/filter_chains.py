"""Filter chains of an HTTPS port: groups of hostnames with the same configuration."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import groupby

import msgspec

from gatehouse.compiler.backends.configuration import PortHostname, all_virtual_hosts
from gatehouse.compiler.backends.source import GatewaySource
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.server_tls import ServerTls
from gatehouse.incremental.grouping import Grouping, group_by
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
    return ask(_grouped, gateway).groups


def _members(ask: Ask, gateway: GatewaySource) -> Table[Group, tuple[PortHostname, ...]]:
    return ask(_grouped, gateway).members


def _grouped(
    ask: Ask, gateway: GatewaySource
) -> Grouping[None, PortHostname, ir.VirtualHost, Group, tuple[bool, str]]:
    return group_by(ask.last(), ask(all_virtual_hosts, gateway), _group_of, _order, None)


def _group_of(_: None, key: PortHostname, host: ir.VirtualHost) -> Iterable[Group]:
    return [(key[0], host.listener, host.certificates, host.tls)]


def _order(_: None, group: Group, keys: tuple[PortHostname, ...]) -> tuple[bool, str]:
    """Return the sort key of a group: whether it lacks the listener's own hostname, and its first
    hostname."""
    own = (group[0], group[1])
    index = bisect_left(keys, own)
    return keys[index : index + 1] != (own,), keys[0][1]
