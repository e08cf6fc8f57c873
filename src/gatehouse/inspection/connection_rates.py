"""Rates, failures and durations of L4 connections and UDP sessions between two readings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.inspection.request_rates import CounterSample, grown_samples, quantile


class ConnectionRate(msgspec.Struct, frozen=True, rename="camel"):
    """Connections and sessions of one L4 route, or of one backend, in a period."""

    name: str
    """Route or backend; empty: connections that no route matches."""
    connections_per_second: float
    failed: float
    """Share that the proxy did not forward, from 0 to 1."""
    median_seconds: float | None = None
    """None: there is no histogram of backends, or there were no connections."""
    p99_seconds: float | None = None
    received_bytes_per_second: float = 0
    sent_bytes_per_second: float = 0


class ConnectionSource(msgspec.Struct, frozen=True):
    """Metrics of what connections are counted by."""

    label: str
    connections: str
    """Counter with the labels ``label`` and ``reason``, which is empty for forwarded ones."""
    duration: str = ""
    """Histogram with the label ``label``; empty if there is none."""
    traffic: str = ""
    """Counter of bytes with the label ``direction``."""

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(filter(None, (self.connections, self.duration, self.traffic)))


CONNECTION_SOURCES = {
    "route": ConnectionSource(
        "route",
        "gatehouse_route_connections",
        "gatehouse_route_connection_duration_seconds",
        "gatehouse_route_connection_bytes",
    ),
    "backend": ConnectionSource("backend", "gatehouse_backend_connections"),
}


class ConnectionGrowth(msgspec.Struct):
    """Growth of the counters of one name."""

    connections: float = 0
    failed: float = 0
    buckets: dict[float, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    """Connections by upper bound of the duration in seconds; cumulative."""
    traffic: dict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    """Bytes by direction."""


def connection_rates(
    growths: Iterable[Mapping[CounterSample, float]], source: ConnectionSource, seconds: float
) -> list[ConnectionRate]:
    """Return the connections of a period of all Pods, most connections first."""
    counts: dict[str, ConnectionGrowth] = defaultdict(ConnectionGrowth)
    for name, series, labels, value in grown_samples(growths, source.families, source.label):
        _add(counts[name], source, series, labels, value)
    rows = (_row(name, entry, seconds) for name, entry in counts.items())
    return sorted(rows, key=lambda row: (-row.connections_per_second, row.name))


def _add(
    counts: ConnectionGrowth,
    source: ConnectionSource,
    series: str,
    labels: Mapping[str, str],
    value: float,
) -> None:
    if series == f"{source.connections}_total":
        counts.connections += value
        counts.failed += value if labels.get("reason") else 0
    elif series == f"{source.duration}_bucket":
        counts.buckets[float(labels["le"])] += value
    elif series == f"{source.traffic}_total":
        counts.traffic[labels.get("direction", "")] += value


def _row(name: str, counts: ConnectionGrowth, seconds: float) -> ConnectionRate:
    return ConnectionRate(
        name,
        counts.connections / seconds,
        counts.failed / counts.connections if counts.connections else 0,
        quantile(0.5, counts.buckets),
        quantile(0.99, counts.buckets),
        counts.traffic["received"] / seconds,
        counts.traffic["sent"] / seconds,
    )
