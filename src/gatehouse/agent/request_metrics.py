"""Metrics of requests per route and backend, counted from the request log of the proxy.

The cost of a request must stay far below that of the proxy: lines with the same head are counted
together, and functions written in C do what is done for each line. The page is written without the
package prometheus_client, which would take several times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gatehouse.agent import request_families as families
from gatehouse.agent.counted_log import CountedLog
from gatehouse.agent.histogram import Histogram
from gatehouse.agent.request_families import DURATION_BOUNDS, Family
from gatehouse.agent.request_lines import Batch, Format
from gatehouse.runtime.prometheus import Sample


class _Rule:
    """Values of one rule of a route."""

    __slots__ = (
        "duration", "labels", "received", "requests", "retries", "sent", "upstream", "used",
    )  # fmt: skip

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.used = 0.0
        self.requests: Counter[tuple[str, str]] = Counter()
        self.duration, self.upstream = Histogram(DURATION_BOUNDS), Histogram(DURATION_BOUNDS)
        self.received = self.sent = self.retries = 0

    def add(self, batch: Batch) -> None:
        self.duration.add(batch.durations)
        self.upstream.add(batch.upstream)
        self.received += batch.received
        self.sent += batch.sent
        self.retries += batch.retries

    def lines(self, family: Family) -> Iterator[str]:
        name, labels = family.name, self.labels
        match family:
            case families.REQUESTS:
                for (method, status), value in self.requests.items():
                    if not value:
                        continue
                    own = f'method="{method}",status_class="{status}"'
                    yield f"{name}{{{own},{labels}}} {value}"
            case families.REQUEST_DURATION:
                yield from self.duration.lines(name, labels)
            case families.UPSTREAM_DURATION:
                yield from self.upstream.lines(name, labels)
            case families.BYTES:
                yield f'{name}{{direction="received",{labels}}} {self.received}'
                yield f'{name}{{direction="sent",{labels}}} {self.sent}'
            case families.RETRIES:
                yield f"{name}{{{labels}}} {self.retries}"


class _Backend:
    """Values of one backend."""

    __slots__ = ("labels", "requests", "used")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.used = 0.0
        self.requests: Counter[tuple[str, str]] = Counter()
        """Number by status class and reason."""

    def lines(self, family: Family) -> Iterator[str]:
        for (status, reason), value in self.requests.items():
            if value:
                own = f'status_class="{status}",reason="{reason}"'
                yield f"{family.name}{{{own},{self.labels}}} {value}"


class RouteMetrics(CountedLog[_Rule, _Backend]):
    """Metrics of the requests in the file `path`, each with `labels` of the data plane.

    `on_failure` gets a backend, and the text of the proxy about why no endpoint responded.
    `completed` returns lines of NGINX with the causes of failures.
    """

    page_families = families.REQUEST_FAMILIES
    backend_family = families.BACKEND_REQUESTS

    def __init__(
        self,
        path: Path,
        log_format: Format,
        labels: Mapping[str, str],
        on_failure: Callable[[str, str], None] = lambda _backend, _text: None,
        completed: Callable[[bytes], bytes] = lambda lines: lines,
    ) -> None:
        super().__init__(path, "request log", _Rule, _Backend, labels, completed)
        self._format, self._on_failure = log_format, on_failure

    def _count(self, text: bytes, lines: list[bytes]) -> None:
        try:
            head = self._format.head(text)
            batch = Batch(self._format, head, lines)
        except ValueError:
            if len(lines) == 1:
                self._malformed += len(text) + len(lines[0]) + 2
                return
            for line in lines:
                self._count(text, [line])
            return
        rule = self._rules.get(head.route)
        rule.add(batch)
        rule.requests[head.method, head.status_class] += batch.answered
        rule.requests[head.method, head.status_class_unanswered] += len(lines) - batch.answered
        forwarded = len(lines) if head.concerns_backend else batch.answered + batch.unanswered
        if head.backend and forwarded:
            counts = self._backends.get(head.backend).requests
            counts[head.status_class, head.reason_answered] += batch.answered
            counts[head.status_class_unanswered, head.reason] += forwarded - batch.answered
            if head.details and forwarded > batch.answered:
                self._on_failure(head.backend.decode(errors="replace"), head.details)

    def samples(self) -> list[Sample]:
        """Return the metrics of the log itself."""
        name = "gatehouse_agent_request_log_dropped_bytes"
        help_ = "Bytes about requests that were not counted, because too many waited or malformed."
        return [Sample(name, help_, self.dropped, "counter")]
