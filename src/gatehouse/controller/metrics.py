"""What the controller measures, as a Prometheus collects it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


class Metric(msgspec.Struct, frozen=True):
    """A measurement, as it is when asked."""

    value: float
    help: str
    total: bool = False
    """Whether it only ever grows."""
    labels: tuple[str, ...] = ()
    """Given: there are several values, told apart by these; ``value`` means nothing."""
    values: Mapping[tuple[str, ...], float] = {}


Figures = Callable[[], Mapping[str, Metric]]


class _Collector(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for name, figure in self._figures().items():
            family = CounterMetricFamily if figure.total else GaugeMetricFamily
            full = f"gatehouse_controller_{name}"
            if not figure.labels:
                yield family(full, figure.help, value=figure.value)
                continue
            several = family(full, figure.help, labels=figure.labels)
            for said, value in figure.values.items():
                several.add_metric(said, value)
            yield several


def collector_registry(figures: Figures) -> CollectorRegistry:
    """Give what a Prometheus collects."""
    made = CollectorRegistry()
    made.register(_Collector(figures))
    return made
