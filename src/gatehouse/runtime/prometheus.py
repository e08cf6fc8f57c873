"""Prometheus metrics as values, and their conversion to metric families."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

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


def page_of(registry: CollectorRegistry) -> Callable[[], Awaitable[bytes]]:
    """Return a function that returns the metrics of `registry` as a page."""

    async def page() -> bytes:
        return generate_latest(registry)

    return page
