"""Metrics of NGINX Plus for the agent's /metrics page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gatehouse.agent.backend_gauges import EndpointCounts
from gatehouse.agent.nginx.plus.client import Api, PlusApiError
from gatehouse.runtime.prometheus import Sample

_COUNTERS = {
    "requests": ("requests", "Client requests."),
    "connections": ("connections", "Connections."),
    "discarded": ("discarded", "Requests or sessions that ended without a response."),
    "received": ("received_bytes", "Received bytes."),
    "sent": ("sent_bytes", "Sent bytes."),
    "fails": ("failures", "Failed attempts."),
    "unavail": ("unavailable", "Times the server became unavailable because of failures."),
}
_GAUGES = {
    "processing": ("processing", "Requests or sessions in progress."),
    "active": ("active", "Active connections."),
    "response_time": ("response_seconds", "Average response time."),
}
"""Values of the API, with name suffix and help text of their metric."""

_STATUSES = "Responses or stream sessions by status class."
_UP = "1 if the server is up, else 0."


class PlusMetrics(NamedTuple):
    """Metrics of NGINX Plus."""

    samples: list[Sample]
    """Metrics of every server zone and every upstream server."""
    endpoints: dict[str, EndpointCounts] | None
    """Endpoints by HTTP upstream. None: NGINX Plus does not respond."""


async def read(socket: Path) -> PlusMetrics:
    """Return the metrics of NGINX Plus.

    They are empty if NGINX Plus does not respond. It is not running then, which `nginx_up` shows.
    """
    samples: list[Sample] = []
    endpoints: dict[str, EndpointCounts] = {}
    try:
        api = Api(socket)
        present = await api.get()
        for kind in ("http", "stream"):
            if kind in present:
                samples += _zones(kind, await api.get(kind, "server_zones"))
                upstreams = await api.get(kind, "upstreams")
                samples += _upstreams(kind, upstreams)
                if kind == "http":
                    endpoints = {name: _counts(upstreams[name]) for name in upstreams}
    except PlusApiError:
        return PlusMetrics([], None)
    return PlusMetrics(samples, endpoints)


def _counts(upstream: Mapping[str, Any]) -> EndpointCounts:
    peers = upstream["peers"]
    return EndpointCounts(len(peers), sum(peer.get("state") == "up" for peer in peers))


def _zones(kind: str, zones: Mapping[str, Any]) -> Iterator[Sample]:
    for name, zone in zones.items():
        yield from _samples(f"nginx_plus_{kind}_server", zone, {"zone": name})


def _upstreams(kind: str, upstreams: Mapping[str, Any]) -> Iterator[Sample]:
    prefix = f"nginx_plus_{kind}_upstream_server"
    for name, upstream in upstreams.items():
        for peer in upstream["peers"]:
            labels = {"upstream": name, "server": peer["server"]}
            yield from _samples(prefix, peer, labels)
            yield Sample(f"{prefix}_up", _UP, peer.get("state") == "up", labels=labels)


def _samples(prefix: str, values: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[Sample]:
    for key, (name, text) in _COUNTERS.items():
        if key in values:
            yield Sample(f"{prefix}_{name}", text, values[key], "counter", labels)
    for key, (name, text) in _GAUGES.items():
        if key in values:
            # The API reports times in milliseconds.
            value = values[key] / 1000 if name.endswith("_seconds") else values[key]
            yield Sample(f"{prefix}_{name}", text, value, labels=labels)
    for key in ("responses", "sessions"):
        for status, count in values.get(key, {}).items():
            if status.endswith("xx"):
                status_labels = {**labels, "status": status}
                yield Sample(f"{prefix}_{key}", _STATUSES, count, "counter", status_labels)
