"""Prometheus metrics of the reviewer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gatehouse.sidecars.reviewer.cache import TTLCache

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ReviewKind = Literal["token", "access"]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_NAME = "gatehouse_reviewer"


class ReviewMetrics:
    """Counts reviews, and exports the state of the caches and queues."""

    def __init__(
        self,
        caches: Mapping[str, TTLCache],
        active: Callable[[], Mapping[str, int]],
        retries: Callable[[], int],
    ) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_State(caches, active, retries))
        self._reviews = Counter(
            f"{_NAME}_reviews",
            "Reviews by cluster and outcome.",
            ("cluster", "review", "outcome"),
            registry=self._registry,
        )
        self._hits = Counter(
            f"{_NAME}_cache_hits",
            "Reviews answered from the cache.",
            ("cluster", "review"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            f"{_NAME}_review_duration_seconds",
            "Duration of reviews, including queueing and retries.",
            ("review",),
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def reviewed(self, cluster: str, kind: ReviewKind, outcome: str, seconds: float) -> None:
        """Count one review of a cluster: ``granted``, ``refused``, ``failed`` or ``busy``."""
        self._reviews.labels(cluster, kind, outcome).inc()
        self._seconds.labels(kind).observe(seconds)

    def hit(self, cluster: str, kind: ReviewKind) -> None:
        """Count a cache hit."""
        self._hits.labels(cluster, kind).inc()

    def page(self) -> bytes:
        """Return all metrics in text format."""
        return generate_latest(self._registry)


class _State(Collector):
    def __init__(
        self,
        caches: Mapping[str, TTLCache],
        count_inflight: Callable[[], Mapping[str, int]],
        retries: Callable[[], int],
    ) -> None:
        self._caches, self._asked, self._retries = caches, count_inflight, retries

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        about = "Cached review results."
        entries = GaugeMetricFamily(f"{_NAME}_cache_entries", about, labels=("cache",))
        about = "Size of the cached review results in characters."
        size = GaugeMetricFamily(f"{_NAME}_cache_size_characters", about, labels=("cache",))
        for name, cache in self._caches.items():
            entries.add_metric((name,), len(cache))
            size.add_metric((name,), cache.characters)
        yield from (entries, size)
        about = "Reviews in progress or queued."
        gauge = GaugeMetricFamily(f"{_NAME}_inflight_reviews", about, labels=("cluster",))
        for cluster, number in self._asked().items():
            gauge.add_metric((cluster,), number)
        yield gauge
        about = "Retries of failed reviews."
        yield CounterMetricFamily(f"{_NAME}_retries", about, value=self._retries())
