"""Prometheus metrics as values, and the writer of their text format.

The package prometheus_client writes the metrics of a process (:func:`format_samples`,
:func:`page_of`). An agent also passes on up to 8 MiB of Envoy's text, at each scrape and on
its event loop. The package would take 2.5 times as long for that text, so :func:`family_header` and
:func:`label_text` serve for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(msgspec.Struct, frozen=True):
    """Current value of one metric with its labels."""

    name: str
    help: str
    value: float
    kind: Literal["gauge", "counter", "unknown"] = "gauge"
    """Metric type. The name of a counter has no `_total` suffix here; it is added when exposed."""
    labels: Mapping[str, str] = {}


def families(samples: Iterable[Sample], labels: Mapping[str, str]) -> Iterable[Metric]:
    """Return one family per metric name, with `labels` added to the labels of each sample."""
    by_name: dict[str, Metric] = {}
    for sample in samples:
        family = by_name.get(sample.name)
        if family is None:
            family = by_name[sample.name] = Metric(sample.name, sample.help, sample.kind)
        name = f"{sample.name}_total" if sample.kind == "counter" else sample.name
        family.add_sample(name, {**labels, **sample.labels}, sample.value)
    return by_name.values()


def format_samples(
    samples: Iterable[Sample], labels: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return samples in Prometheus text format, with `labels` added."""
    registry = CollectorRegistry()
    registry.register(_Families(families(samples, labels)))
    return generate_latest(registry).decode()


class _Families(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def family_header(name: str, kind: str, help_: str) -> tuple[str, str]:
    """Return the lines in front of the samples of a family. `name` has the suffix of counters."""
    return f"# HELP {name} {help_}", f"# TYPE {name} {kind}"


def label_text(labels: Mapping[str, str]) -> str:
    """Return the labels of a sample without braces. Empty labels are left out."""
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items() if value)


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def page_of(registry: CollectorRegistry) -> Callable[[], Awaitable[bytes]]:
    """Return a function that returns the metrics of `registry` as a page."""

    async def page() -> bytes:
        return generate_latest(registry)

    return page


def series_labels(label: str, value: str, labels: Mapping[str, str]) -> str:
    """Return the text of the label of a series, which may be empty, and of more labels."""
    own = label_text({label: value}) or f'{label}=""'
    return ",".join(filter(None, (own, label_text(labels))))
