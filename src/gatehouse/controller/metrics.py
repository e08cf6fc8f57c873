"""Prometheus metrics of the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


class Metric(msgspec.Struct, frozen=True):
    """Current value of a metric."""

    value: float
    help: str
    total: bool = False
    """True if it is a counter; otherwise it is a gauge."""
    labels: tuple[str, ...] = ()
    """Label names. If not empty, :attr:`values` applies instead of :attr:`value`."""
    values: Mapping[tuple[str, ...], float] = {}
    """Values by label values."""


COMPILE_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds in seconds: from one changed endpoint to the first pass over 10,000 routes."""

Metrics = Callable[[], Mapping[str, Metric]]


class _Collector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for name, metric in self._metrics().items():
            family = CounterMetricFamily if metric.total else GaugeMetricFamily
            full_name = f"gatehouse_controller_{name}"
            if not metric.labels:
                yield family(full_name, metric.help, value=metric.value)
                continue
            labelled = family(full_name, metric.help, labels=metric.labels)
            for label_values, value in metric.values.items():
                labelled.add_metric(label_values, value)
            yield labelled


def compile_duration_histogram() -> Histogram:
    """Return the histogram of the duration of compile passes, not yet registered."""
    return Histogram(
        "gatehouse_controller_compile_duration_seconds",
        "Duration of compile passes.",
        buckets=COMPILE_BUCKETS,
        registry=None,
    )


def collector_registry(metrics: Metrics, *more: Collector | Histogram) -> CollectorRegistry:
    """Return a registry of ``more`` collectors that also reads ``metrics`` at each scrape."""
    registry = CollectorRegistry()
    for collector in (_Collector(metrics), *more):
        registry.register(collector)
    return registry
