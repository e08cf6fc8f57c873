"""What the controller measures, as a Prometheus collects it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Histogram
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


COMPILE_BUCKETS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""Upper bounds in seconds: from one changed endpoint to the first pass over 10,000 routes."""

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


def compile_duration_histogram() -> Histogram:
    """Return the histogram of the duration of compile passes, not yet registered."""
    return Histogram(
        "gatehouse_controller_compile_duration_seconds",
        "Duration of compile passes.",
        buckets=COMPILE_BUCKETS,
        registry=None,
    )


def collector_registry(figures: Figures, *more: Collector | Histogram) -> CollectorRegistry:
    """Return the registry of the figures and of `more` collectors."""
    made = CollectorRegistry()
    for collector in (_Collector(figures), *more):
        made.register(collector)
    return made
