"""What NGINX Plus counts, for the agent's /metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gatehouse.agent.nginx.plus.client import Api, PlusError
from gatehouse.runtime.prometheus import Figure

_COUNTERS = {
    "requests": ("requests", "Requests of clients."),
    "connections": ("connections", "Connections."),
    "discarded": ("discarded", "Those that ended without an answer."),
    "received": ("received_bytes", "Bytes that came."),
    "sent": ("sent_bytes", "Bytes that went."),
    "fails": ("failures", "Attempts that failed."),
    "unavail": ("unavailable", "Times it was left out because of failures."),
}
_GAUGES = {
    "processing": ("processing", "Those under way."),
    "active": ("active", "Connections at this moment."),
    "response_time": ("response_milliseconds", "How long it took to answer, on average."),
}
"""Figures of the API, and what they are here called."""

_STATUSES = "Answers, or sessions of streams, by class of status."
_UP = "Whether it takes part."


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
            yield Figure(f"{prefix}_{name}", about, counted[key], labels=labels)
    for key in ("responses", "sessions"):
        for status, count in counted.get(key, {}).items():
            if status.endswith("xx"):
                told = {**labels, "status": status}
                yield Figure(f"{prefix}_{key}", _STATUSES, count, "counter", told)
