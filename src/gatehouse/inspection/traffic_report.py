"""Requests and connections of routes and backends in a period, from metrics pages. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.inspection.connection_rates import (
    CONNECTION_SOURCES,
    ConnectionRate,
    connection_rates,
)
from gatehouse.inspection.data_plane_metrics import MetricsPage
from gatehouse.inspection.request_rates import (
    SOURCES,
    CounterSample,
    RequestRate,
    growth,
    parse_page,
    request_rates,
)


class TrafficReport(msgspec.Struct, frozen=True, rename="camel"):
    """Traffic of a period: the JSON of `gatehouse top`."""

    data_planes: int
    """Data planes whose metrics were read."""
    seconds: float
    rows: tuple[RequestRate, ...]
    connections: tuple[ConnectionRate, ...] = ()
    """L4 connections and UDP sessions."""
    problems: tuple[str, ...] = ()
    """Data planes whose metrics could not be read."""


class TrafficMeter:
    """Traffic between consecutive readings of metrics pages.

    ``by``: a key of :data:`~gatehouse.inspection.request_rates.SOURCES`.
    """

    def __init__(self, by: str) -> None:
        self._source, self._connections = SOURCES[by], CONNECTION_SOURCES[by]
        self._before: dict[str, dict[CounterSample, float]] = {}
        self._read_at: float | None = None

    def report(self, pages: Iterable[MetricsPage], now: float) -> TrafficReport | None:
        """Return the traffic since the last reading; None for the first one.

        ``now``: monotonic time of the reading in seconds. Raises ValueError for a page without
        metrics.
        """
        pages = tuple(pages)
        families = (*self._source.families, *self._connections.families)
        after = {page.pod: parse_page(page.text, families) for page in pages if not page.problem}
        before, read_at = self._before, self._read_at
        self._before, self._read_at = after, now
        if read_at is None:
            return None
        growths = [growth(before[pod], after[pod]) for pod in after.keys() & before.keys()]
        seconds = now - read_at
        rows = tuple(request_rates(growths, self._source, seconds))
        connections = tuple(connection_rates(growths, self._connections, seconds))
        problems = tuple(f"{page.pod}: {page.problem}" for page in pages if page.problem)
        return TrafficReport(len(after), round(seconds, 3), rows, connections, problems)
