"""From the servers that an upstream has to those it is to have."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.dataplane.endpoints import Endpoints

Server = Mapping[str, Any]
"""A server as the API writes it."""

DEFAULTS: Mapping[str, Any] = {
    "weight": 1,
    "max_conns": 0,
    "max_fails": 1,
    "fail_timeout": "10s",
    "slow_start": "0s",
    "route": "",
    "down": False,
    "drain": False,
}
"""What can be changed in a server, and what it is where nobody says otherwise."""

FIXED: Mapping[str, Any] = {"backup": False, "service": ""}
"""What cannot: a server that is to have it otherwise is another server."""


class Changes(msgspec.Struct, frozen=True):
    """What is to be done, in this order: so an upstream is never without a server that it keeps."""

    add: tuple[Server, ...] = ()
    change: tuple[tuple[int, Server], ...] = ()
    """Ids, and what of each server."""
    remove: tuple[int, ...] = ()
    """Ids."""

    def __bool__(self) -> bool:
        return bool(self.add or self.change or self.remove)


def desired_servers(endpoints: Endpoints) -> list[Server]:
    """Give the servers that endpoints are.

    Whether one is fit is for its readiness to say, so failures count for nothing.
    """
    return [{"server": each.encoded, "weight": each.weight, "max_fails": 0} for each in endpoints]


def servers_match(endpoints: Endpoints, peers: Sequence[Server]) -> bool:
    """Whether an upstream's peers, as its status shows them, are just these endpoints."""
    found = sorted((normalize_address(peer["server"]), peer["weight"]) for peer in peers)
    usual = all(
        peer["state"] not in ("down", "draining")
        and not peer["backup"]
        and not peer.get("max_conns")
        for peer in peers
    )
    return usual and found == sorted(
        (normalize_address(each.encoded), each.weight) for each in endpoints
    )


def diff(present: Sequence[Server], desired: Sequence[Server]) -> Changes:
    """Compare the servers that an upstream has with those it is to have."""
    # Addresses that were found for a name come and go with the server that has the name.
    own = [server for server in present if "parent" not in server]
    left: dict[tuple[Any, ...], list[Server]] = {}
    for server in own:
        left.setdefault(_identity(server), []).append(server)
    add, change = [], []
    for server in _distinct(desired):
        found = left.get(_identity(server))
        if not found:
            add.append(_told(server))
            continue
        known = found.pop(0)
        if differing := _differing(known, server):
            change.append((int(known["id"]), differing))
    remove = sorted(int(server["id"]) for found in left.values() for server in found)
    return Changes(tuple(add), tuple(change), tuple(remove))


def normalize_address(address: str) -> str:
    """Write an address the one way by which two can be compared."""
    if address.startswith("unix:"):
        return address
    if address.startswith("["):
        host, _, port = address[1:].partition("]")
        try:
            host = ipaddress.ip_address(host).compressed
        except ValueError:
            return address
        return f"[{host}]:{port.removeprefix(':') or 80}"
    host, _, port = address.partition(":")
    return f"{host.lower()}:{port or 80}"


def _identity(server: Server) -> tuple[Any, ...]:
    name = server["server"] if server.get("service") else normalize_address(server["server"])
    return (name, *(server.get(key, default) for key, default in FIXED.items()))


def _distinct(desired: Sequence[Server]) -> list[Server]:
    """Give each server once; of two with one address the first."""
    return list({_identity(server): server for server in reversed(desired)}.values())[::-1]


def _told(server: Server) -> Server:
    return {key: value for key, value in server.items() if key != "id"}


def _differing(known: Server, server: Server) -> Server:
    """Give what must be said, defaults too: what is not said is not changed."""
    asked = {
        key: server.get(key, default)
        for key, default in DEFAULTS.items()
        if server.get(key, default) != known.get(key, default)
    }
    if "drain" in asked and "down" not in asked:
        # A server stops draining when it is said to be up.
        asked["down"] = server.get("down", False)
    return asked
