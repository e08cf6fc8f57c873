"""Prometheus metrics of the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


class Metric(msgspec.Struct, frozen=True):
    """Current value of a metric."""

    value: float
    help: str
    total: bool = False
    """Whether it is a counter; otherwise it is a gauge."""
    labels: tuple[str, ...] = ()
    """Label names. If not empty, :attr:`values` applies instead of :attr:`value`."""
    values: Mapping[tuple[str, ...], float] = {}
    """Values by label values."""


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


def collector_registry(metrics: Metrics) -> CollectorRegistry:
    """Return a registry that reads ``metrics`` at each scrape."""
    registry = CollectorRegistry()
    registry.register(_Collector(metrics))
    return registry
