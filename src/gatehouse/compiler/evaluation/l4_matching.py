"""Choice of the backends of a connection, decided on the IR. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from gatehouse.compiler.evaluation.http_matching import most_specific
from gatehouse.compiler.ir.gateway import GatewayConfiguration, L4Host, L4Listener
from kube_base.types import ip_addresses

L4Outcome = Literal["no-port", "no-hostname", "client-rejected", "no-backend", "matched"]


class L4Connection(msgspec.Struct, frozen=True):
    """A connection without HTTP processing."""

    protocol: Literal["TCP", "UDP", "TLS"]
    port: int
    sni: str = ""
    """Server name of a TLS handshake; empty: none is sent."""
    client: str = ""
    """IP address of the client; empty: any permitted one."""


class L4Decision(msgspec.Struct, frozen=True):
    """Result of the search for an L4 host."""

    outcome: L4Outcome
    listener: L4Listener | None = None
    host: L4Host | None = None


def decide_l4(gateway: GatewayConfiguration, connection: L4Connection) -> L4Decision:
    """Return the L4 host that forwards a connection."""
    listener = next(
        (
            entry
            for entry in gateway.l4_listeners
            if (entry.port, entry.protocol) == (connection.port, connection.protocol)
        ),
        None,
    )
    if listener is None:
        return L4Decision("no-port")
    hosts = {host.hostname: host for host in listener.hosts}
    hostname = most_specific(hosts, connection.sni.lower())
    if hostname is None:
        return L4Decision("no-hostname", listener)
    host = hosts[hostname]
    if not is_permitted(connection.client, host.sources):
        return L4Decision("client-rejected", listener, host)
    return L4Decision("matched" if host.backends else "no-backend", listener, host)


def is_permitted(client: str, sources: Iterable[str]) -> bool:
    """Return whether a client address is in one of the ranges. No ranges permit all clients.

    An empty client stands for any permitted one.
    """
    ranges = [ip_addresses.ip_network(source) for source in sources]
    return not client or not ranges or any(ip_addresses.ip_address(client) in r for r in ranges)
