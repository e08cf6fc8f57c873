"""Rates, errors and durations of requests between two readings of metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

import msgspec
from prometheus_client.parser import text_string_to_metric_families


class RequestRate(msgspec.Struct, frozen=True, rename="camel"):
    """Requests of one route, or of one backend, in a period."""

    name: str
    """Route or backend; empty: requests that no route matches."""
    requests_per_second: float
    client_errors: float
    """Share of responses 4xx, from 0 to 1."""
    server_errors: float
    """Share of responses 5xx, from 0 to 1."""
    median_seconds: float | None = None
    """None: there is no histogram of backends, or there were no requests."""
    p99_seconds: float | None = None
    retries_per_second: float = 0
    sent_bytes_per_second: float = 0
    status_classes: Mapping[str, float] = {}
    """Requests per second by status class, such as ``2xx``; classes without requests are absent."""


class RateSource(msgspec.Struct, frozen=True):
    """Metrics of what requests are counted by."""

    label: str
    requests: str
    """Counter with the labels ``label`` and ``status_class``."""
    duration: str = ""
    """Histogram with the label ``label``; empty if there is none."""
    retries: str = ""
    traffic: str = ""
    """Counter of bytes with the label ``direction``."""

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(filter(None, (self.requests, self.duration, self.retries, self.traffic)))


SOURCES = {
    "route": RateSource(
        "route",
        "gatehouse_route_requests",
        "gatehouse_route_request_duration_seconds",
        "gatehouse_route_retries",
        "gatehouse_route_bytes",
    ),
    "backend": RateSource("backend", "gatehouse_backend_requests"),
}


class CounterGrowth(msgspec.Struct):
    """Growth of the counters of one name."""

    classes: dict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    """Requests by status class."""
    buckets: dict[float, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    """Requests by upper bound of the duration in seconds; cumulative."""
    retries: float = 0
    sent: float = 0


CounterSample = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels of a series."""


def parse_page(text: str, families: Collection[str]) -> dict[CounterSample, float]:
    """Return the counters of metrics on a page. Raises ValueError for another text."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        if family.name in families
        for sample in family.samples
    }


def growth(
    before: Mapping[CounterSample, float], after: Mapping[CounterSample, float]
) -> dict[CounterSample, float]:
    """Return how much each counter of one Pod grew: one that began again, by its value."""
    return {
        sample: value - (before.get(sample, 0) if before.get(sample, 0) <= value else 0)
        for sample, value in after.items()
    }


def grown_samples(
    growths: Iterable[Mapping[CounterSample, float]], families: tuple[str, ...], label: str
) -> Iterator[tuple[str, str, dict[str, str], float]]:
    """Yield the value of a label, the series, its labels and its growth, for some metrics."""
    for grown in growths:
        for (series, pairs), value in grown.items():
            if series.startswith(families):
                labels = dict(pairs)
                yield labels.get(label, ""), series, labels, value


def request_rates(
    growths: Iterable[Mapping[CounterSample, float]], source: RateSource, seconds: float
) -> list[RequestRate]:
    """Return the traffic of a period of all Pods, most requests first."""
    counts: dict[str, CounterGrowth] = defaultdict(CounterGrowth)
    for name, series, labels, value in grown_samples(growths, source.families, source.label):
        _add(counts[name], source, series, labels, value)
    rows = (_row(name, entry, seconds) for name, entry in counts.items())
    return sorted(rows, key=lambda row: (-row.requests_per_second, row.name))


def _add(
    counts: CounterGrowth, source: RateSource, series: str, labels: Mapping[str, str], value: float
) -> None:
    if series == f"{source.requests}_total":
        counts.classes[labels["status_class"]] += value
    elif series == f"{source.duration}_bucket":
        counts.buckets[float(labels["le"])] += value
    elif series == f"{source.retries}_total":
        counts.retries += value
    elif series == f"{source.traffic}_total" and labels.get("direction") == "sent":
        counts.sent += value


def _row(name: str, counts: CounterGrowth, seconds: float) -> RequestRate:
    requests = sum(counts.classes.values())
    return RequestRate(
        name,
        requests / seconds,
        counts.classes["4xx"] / requests if requests else 0,
        counts.classes["5xx"] / requests if requests else 0,
        quantile(0.5, counts.buckets),
        quantile(0.99, counts.buckets),
        counts.retries / seconds,
        counts.sent / seconds,
        {name: count / seconds for name, count in sorted(counts.classes.items()) if count},
    )


def quantile(share: float, buckets: Mapping[float, float]) -> float | None:
    """Return a quantile of a histogram in its unit, as ``histogram_quantile`` of Prometheus.

    ``buckets``: cumulative counts by upper bound. None if they are empty.
    """
    total = max(buckets.values(), default=0)
    if not total:
        return None
    rank = share * total
    for (lower, below), (upper, count) in pairwise([(0.0, 0.0), *sorted(buckets.items())]):
        if count >= rank and count > below:
            if upper == float("inf"):
                return lower
            return lower + (upper - lower) * (rank - below) / (count - below)
    return None
