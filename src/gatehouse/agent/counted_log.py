"""A log of a proxy whose lines the agent counts, by rule of a route and by backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from gatehouse.agent.bounded_series import BoundedSeries, Series
from gatehouse.agent.drained_file import DrainedFile
from gatehouse.agent.request_families import Family
from gatehouse.dataplane.request_log import SEPARATOR
from gatehouse.runtime import prometheus

_READ_BYTES = 1 << 18
"""Bytes that are counted at once: a few milliseconds, in which the agent does nothing else."""

_SEPARATOR = SEPARATOR.encode()


class LoggedSeries(Series, Protocol):
    """The values of one rule or backend."""

    def lines(self, family: Family) -> Iterator[str]:
        """Yield the lines of a metric."""


RuleT = TypeVar("RuleT", bound=LoggedSeries)
BackendT = TypeVar("BackendT", bound=LoggedSeries)


class CountedLog(ABC, Generic[RuleT, BackendT]):
    """Metrics of the lines in the file `path`, which is called `name` in messages.

    `rule` and `backend` create values from labels, to which those of the data plane belong.
    `completed` returns lines with what is known apart from them.
    """

    page_families: Sequence[Family]
    """Metrics in the order of the page."""
    backend_family: Family
    """The metric of backends. All others are those of rules."""

    def __init__(
        self,
        path: Path,
        name: str,
        rule: Callable[[str], RuleT],
        backend: Callable[[str], BackendT],
        labels: Mapping[str, str],
        completed: Callable[[bytes], bytes],
    ) -> None:
        self._completed = completed
        self._file = DrainedFile(path, self.count, name, _READ_BYTES)
        self._malformed = 0
        self._rules = BoundedSeries(
            lambda route: rule(prometheus.series_labels("route", route, labels)), 0
        )
        self._backends = BoundedSeries(
            lambda name: backend(prometheus.series_labels("backend", name, labels)), 1
        )

    async def run(self) -> None:
        """Count lines until cancelled."""
        await self._file.drain()

    def count(self, data: bytes) -> int:
        """Count complete lines. Return the number of bytes, which is all."""
        # Clients choose methods: the number of heads is limited only by the size of the data.
        groups: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for line in self._completed(data).removesuffix(b"\n").split(b"\n"):
            head, _, numbers = line.rpartition(_SEPARATOR)
            groups[head].append(numbers)
        for head, lines in groups.items():
            self._count(head, lines)
        return len(data)

    @abstractmethod
    def _count(self, text: bytes, lines: list[bytes]) -> None:
        """Count lines with the same head."""

    @property
    def dropped(self) -> int:
        """Bytes that were not counted, because too many waited or malformed."""
        return self._file.dropped + self._malformed

    def text(self) -> str:
        """Return the metrics in Prometheus text format."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        for family in self.page_families:
            series: BoundedSeries[RuleT] | BoundedSeries[BackendT] = (
                self._backends if family is self.backend_family else self._rules
            )
            lines = [line for one in series if one.used for line in one.lines(family)]
            if lines:
                yield from prometheus.family_header(family.name, family.kind, family.help)
                yield from lines
