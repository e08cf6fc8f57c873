"""Requests to kube-apiservers in a period: by server, limit, data plane and resource. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gatehouse.inspection.data_plane_metrics import MetricsPage
from gatehouse.inspection.request_rates import CounterSample, growth, parse_page

_REQUESTS = "gatehouse_kube_requests"
_REJECTED = "gatehouse_kube_rejected_requests"
_IN_FLIGHT = "gatehouse_kube_inflight_requests"
_LONG_RUNNING = "gatehouse_kube_longrunning_requests"
_HEALTHY = "gatehouse_kube_server_healthy"
_FAMILIES = (_REQUESTS, _REJECTED, _IN_FLIGHT, _LONG_RUNNING, _HEALTHY)

MAX_RESOURCES = 20
"""Maximum number of resources for each limit of a cluster: the busiest ones."""


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all parts."""


class MeasuredServer(_Part, frozen=True):
    """Requests at one server."""

    cluster: str
    server: str
    """Address and port."""
    ready: int
    """Data planes at which the server is ready."""
    data_planes: int
    """Data planes that check it."""
    in_flight: int
    requests_per_second: float


class MeasuredLimit(_Part, frozen=True):
    """Requests that count for one limit at one data plane."""

    cluster: str
    schema: str
    """Empty: requests without a limit."""
    data_plane: str
    """``namespace/name`` of the Pod."""
    in_flight: int
    long_running: int
    requests_per_second: float
    rejected_per_second: Mapping[str, float]
    """Rejected requests by reason; reasons without requests are absent."""


class MeasuredResource(_Part, frozen=True):
    """Requests for one resource that count for one limit."""

    cluster: str
    schema: str
    verb: str
    resource: str
    requests_per_second: float


class ApiTraffic(_Part, frozen=True):
    """Traffic of a period."""

    data_planes: int
    """Data planes whose metrics were read."""
    seconds: float
    servers: tuple[MeasuredServer, ...]
    limits: tuple[MeasuredLimit, ...]
    resources: tuple[MeasuredResource, ...]
    """Busiest first."""
    problems: tuple[str, ...] = ()
    """Data planes whose metrics could not be read."""


class ApiTrafficMeter:
    """Traffic between consecutive readings of metrics pages."""

    def __init__(self) -> None:
        self._before: dict[str, dict[CounterSample, float]] = {}
        self._read_at: float | None = None

    def report(self, pages: Iterable[MetricsPage], now: float) -> ApiTraffic | None:
        """Return the traffic since the last reading; None for the first one.

        ``now``: monotonic time of the reading in seconds. Raises ValueError for a page without
        metrics.
        """
        pages = tuple(pages)
        after = {page.pod: parse_page(page.text, _FAMILIES) for page in pages if not page.problem}
        before, read_at = self._before, self._read_at
        self._before, self._read_at = after, now
        if read_at is None:
            return None
        rates = {
            pod: growth(before[pod], after[pod]) for pod in sorted(after.keys() & before.keys())
        }
        seconds = now - read_at
        problems = tuple(f"{page.pod}: {page.problem}" for page in pages if page.problem)
        return ApiTraffic(
            len(after),
            round(seconds, 3),
            tuple(_servers(after, rates, seconds)),
            tuple(_limits(after, rates, seconds)),
            tuple(_resources(rates, seconds)),
            problems,
        )


_Pages = Mapping[str, Mapping[CounterSample, float]]
"""Samples by Pod."""


def _samples(pages: _Pages, series: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield the Pod, labels and value of each sample of a series."""
    for pod, samples in pages.items():
        for (name, labels), value in samples.items():
            if name == series:
                yield pod, defaultdict(str, labels), value


def _servers(after: _Pages, rates: _Pages, seconds: float) -> Iterator[MeasuredServer]:
    planes: dict[tuple[str, str], list[float]] = defaultdict(list)
    in_flight: dict[tuple[str, str], float] = defaultdict(float)
    requests: dict[tuple[str, str], float] = defaultdict(float)
    for _, labels, value in _samples(after, _HEALTHY):
        planes[labels["cluster"], labels["server"]].append(value)
    for _, labels, value in _samples(after, _IN_FLIGHT):
        in_flight[labels["cluster"], labels["server"]] += value
    for _, labels, value in _samples(rates, f"{_REQUESTS}_total"):
        requests[labels["cluster"], labels["server"]] += value
    for cluster, server in sorted(planes):
        key, healthy = (cluster, server), planes[cluster, server]
        count, ready = len(healthy), sum(value == 1 for value in healthy)
        yield MeasuredServer(*key, ready, count, round(in_flight[key]), requests[key] / seconds)


def _limits(after: _Pages, rates: _Pages, seconds: float) -> Iterator[MeasuredLimit]:
    in_flight: dict[tuple[str, str, str], float] = defaultdict(float)
    long_running: dict[tuple[str, str, str], float] = defaultdict(float)
    requests: dict[tuple[str, str, str], float] = defaultdict(float)
    rejected: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for series, pages, target in (
        (_IN_FLIGHT, after, in_flight),
        (_LONG_RUNNING, after, long_running),
        (f"{_REQUESTS}_total", rates, requests),
    ):
        for pod, labels, value in _samples(pages, series):
            target[labels["cluster"], labels["schema"], pod] += value
    for pod, labels, value in _samples(rates, f"{_REJECTED}_total"):
        if value:
            reasons = rejected[labels["cluster"], labels["schema"], pod]
            reasons[labels["reason"]] = reasons.get(labels["reason"], 0) + value / seconds
    for key in sorted({*in_flight, *long_running, *requests, *rejected}):
        yield MeasuredLimit(
            *key,
            round(in_flight[key]),
            round(long_running[key]),
            requests[key] / seconds,
            rejected[key],
        )


def _resources(rates: _Pages, seconds: float) -> Iterator[MeasuredResource]:
    requests: dict[tuple[str, str, str, str], float] = defaultdict(float)
    for _, labels, value in _samples(rates, f"{_REQUESTS}_total"):
        if value:
            key = labels["cluster"], labels["schema"], labels["verb"], labels["resource"]
            requests[key] += value / seconds
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for key, rate in sorted(requests.items(), key=lambda item: (-item[1], item[0])):
        counts[key[:2]] += 1
        if counts[key[:2]] <= MAX_RESOURCES:
            yield MeasuredResource(*key, rate)
