"""A histogram with fixed buckets, in Prometheus text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator


class Histogram:
    """Counts values by bucket. `bounds`: the upper bounds."""

    __slots__ = ("_bounds", "_buckets", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._buckets = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, values: Iterable[tuple[float, int]]) -> None:
        """Add values, each with the number of times that it occurred."""
        for value, times in values:
            self._buckets[bisect_left(self._bounds, value)] += times
            self._sum += value * times

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the lines of the series."""
        count = 0
        bounds = (*(f"{bound:g}" for bound in self._bounds), "+Inf")
        for bound, number in zip(bounds, self._buckets, strict=True):
            count += number
            yield f'{name}_bucket{{le="{bound}",{labels}}} {count}'
        yield f"{name}_sum{{{labels}}} {self._sum:.15g}"
        yield f"{name}_count{{{labels}}} {count}"
