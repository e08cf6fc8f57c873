"""Changes from the servers of an upstream to the desired ones."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.dataplane.endpoints import Endpoints

ServerObject = Mapping[str, Any]
"""A server in the API's format."""

_DEFAULTS: Mapping[str, Any] = {
    "weight": 1,
    "max_conns": 0,
    "max_fails": 1,
    "fail_timeout": "10s",
    "slow_start": "0s",
    "route": "",
    "down": False,
    "drain": False,
}
"""Server parameters that can be changed, with their defaults."""

FIXED: Mapping[str, Any] = {"backup": False, "service": ""}
"""Server parameters that cannot be changed. Another value needs another server."""


class ServerChanges(msgspec.Struct, frozen=True):
    """Changes in the order to apply them, so that an upstream never lacks a server that stays."""

    add: tuple[ServerObject, ...] = ()
    change: tuple[tuple[int, ServerObject], ...] = ()
    """Server IDs with the parameters to change."""
    remove: tuple[int, ...] = ()
    """Server IDs."""

    def __bool__(self) -> bool:
        return bool(self.add or self.change or self.remove)


def desired_servers(endpoints: Endpoints) -> list[ServerObject]:
    """Return the servers for endpoints.

    Failures are not counted, because readiness decides whether an endpoint gets requests.
    """
    return [
        {"server": endpoint.encoded, "weight": endpoint.weight, "max_fails": 0}
        for endpoint in endpoints
    ]


def servers_match(endpoints: Endpoints, peers: Sequence[ServerObject]) -> bool:
    """Return whether the peers in an upstream's status are exactly these endpoints."""
    actual = sorted((normalize_address(peer["server"]), peer["weight"]) for peer in peers)
    is_normal = all(
        peer["state"] not in ("down", "draining")
        and not peer["backup"]
        and not peer.get("max_conns")
        for peer in peers
    )
    return is_normal and actual == sorted(
        (normalize_address(endpoint.encoded), endpoint.weight) for endpoint in endpoints
    )


def diff(present: Sequence[ServerObject], desired: Sequence[ServerObject]) -> ServerChanges:
    """Return the changes from the servers an upstream has to the desired ones."""
    # Resolved addresses of a name are added and removed with the server of that name.
    configured = [server for server in present if "parent" not in server]
    unmatched: dict[tuple[Any, ...], list[ServerObject]] = {}
    for server in configured:
        unmatched.setdefault(_identity(server), []).append(server)
    add, change = [], []
    for server in _distinct(desired):
        candidates = unmatched.get(_identity(server))
        if not candidates:
            add.append(_without_id(server))
            continue
        known = candidates.pop(0)
        if differing := _differing(known, server):
            change.append((int(known["id"]), differing))
    remove = sorted(int(server["id"]) for servers in unmatched.values() for server in servers)
    return ServerChanges(tuple(add), tuple(change), tuple(remove))


def normalize_address(address: str) -> str:
    """Return the canonical form of an address, for comparison."""
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


def _identity(server: ServerObject) -> tuple[Any, ...]:
    name = server["server"] if server.get("service") else normalize_address(server["server"])
    return (name, *(server.get(key, default) for key, default in FIXED.items()))


def _distinct(desired: Sequence[ServerObject]) -> list[ServerObject]:
    """Return each server once. Of two with the same address the first counts."""
    return list({_identity(server): server for server in reversed(desired)}.values())[::-1]


def _without_id(server: ServerObject) -> ServerObject:
    return {key: value for key, value in server.items() if key != "id"}


def _differing(known: ServerObject, server: ServerObject) -> ServerObject:
    """Return the parameters to send, including defaults: omitted ones do not change."""
    changed = {
        key: server.get(key, default)
        for key, default in _DEFAULTS.items()
        if server.get(key, default) != known.get(key, default)
    }
    if "drain" in changed and "down" not in changed:
        # A server stops draining only if `down` is set to false.
        changed["down"] = server.get("down", False)
    return changed
