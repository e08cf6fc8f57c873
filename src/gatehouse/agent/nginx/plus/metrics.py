"""What NGINX Plus counts, for the agent's /metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gatehouse.agent.nginx.plus.client import Api, PlusError
from gatehouse.runtime.prometheus import Figure

_COUNTERS = {
    "requests": ("requests", "Client requests."),
    "connections": ("connections", "Connections."),
    "discarded": ("discarded", "Requests or sessions that ended without a response."),
    "received": ("received_bytes", "Bytes received."),
    "sent": ("sent_bytes", "Bytes sent."),
    "fails": ("failures", "Failed attempts."),
    "unavail": ("unavailable", "Times the server became unavailable because of failures."),
}
_GAUGES = {
    "processing": ("processing", "Requests or sessions in progress."),
    "active": ("active", "Open connections."),
    "response_time": ("response_seconds", "Average response time."),
}
"""Figures of the API, and what they are here called."""

_STATUSES = "Responses or stream sessions by status class."
_UP = "1 if the server is up, else 0."


async def figures(socket: Path) -> list[Figure]:
    """Give the figures of every virtual server and every upstream's server.

    None where NGINX Plus does not answer: then it is not running, which others tell.
    """
    found: list[Figure] = []
    try:
        api = Api(socket)
        present = await api.get()
        for kind in ("http", "stream"):
            if kind in present:
                found += _zones(kind, await api.get(kind, "server_zones"))
                found += _upstreams(kind, await api.get(kind, "upstreams"))
    except PlusError:
        return []
    return found


def _zones(kind: str, zones: Mapping[str, Any]) -> Iterator[Figure]:
    for name, zone in zones.items():
        yield from _counted(f"nginx_plus_{kind}_server", zone, {"zone": name})


def _upstreams(kind: str, upstreams: Mapping[str, Any]) -> Iterator[Figure]:
    prefix = f"nginx_plus_{kind}_upstream_server"
    for name, upstream in upstreams.items():
        for peer in upstream["peers"]:
            labels = {"upstream": name, "server": peer["server"]}
            yield from _counted(prefix, peer, labels)
            yield Figure(f"{prefix}_up", _UP, peer.get("state") == "up", labels=labels)


def _counted(
    prefix: str, counted: Mapping[str, Any], labels: Mapping[str, str]
) -> Iterator[Figure]:
    for key, (name, about) in _COUNTERS.items():
        if key in counted:
            yield Figure(f"{prefix}_{name}", about, counted[key], "counter", labels)
    for key, (name, about) in _GAUGES.items():
        if key in counted:
            # The API reports times in milliseconds.
            value = counted[key] / 1000 if name.endswith("_seconds") else counted[key]
            yield Figure(f"{prefix}_{name}", about, value, labels=labels)
    for key in ("responses", "sessions"):
        for status, count in counted.get(key, {}).items():
            if status.endswith("xx"):
                told = {**labels, "status": status}
                yield Figure(f"{prefix}_{key}", _STATUSES, count, "counter", told)
