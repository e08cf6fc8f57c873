"""What is measured, in Prometheus' words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Figure(msgspec.Struct, frozen=True):
    """A measurement, as it is now."""

    name: str
    help: str
    value: float
    kind: Literal["gauge", "counter", "unknown"] = "gauge"
    """A counter's name does not end in ``_total`` here, but does where it is shown."""
    labels: Mapping[str, str] = {}


def families(figures: Iterable[Figure], labels: Mapping[str, str]) -> Iterable[Metric]:
    """Give the figures by name, each with ``labels`` beside its own."""
    found: dict[str, Metric] = {}
    for figure in figures:
        family = found.get(figure.name)
        if family is None:
            family = found[figure.name] = Metric(figure.name, figure.help, figure.kind)
        sample = f"{figure.name}_total" if figure.kind == "counter" else figure.name
        family.add_sample(sample, {**labels, **figure.labels}, figure.value)
    return found.values()
