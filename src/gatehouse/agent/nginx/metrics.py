"""What is measured of the agent and its NGINX, in Prometheus' words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gatehouse.runtime import unix_http
from gatehouse.runtime.prometheus import Figure, families

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: from a change of endpoints to ``nginx -t`` of thousands of servers."""

STEPS = ("fetch", "test", "reload", "confirm")
"""Bringing files; ``nginx -t``; until new workers are all there are; until they are believed."""

_STATUS = {
    "active": "Client connections, including idle ones.",
    "reading": "Connections whose request header is being read.",
    "writing": "Connections to which a response is being written.",
    "waiting": "Idle client connections.",
}


class Measurements(Collector):
    """Everything that is shown, each with the labels of this data plane."""

    def __init__(
        self,
        labels: Mapping[str, str],
        figures: Callable[[], Iterable[Figure]],
        status: Path,
        more: Callable[[], Awaitable[Iterable[Figure]]],
    ) -> None:
        """``status``: the socket on which NGINX tells how it is; ``more``: what else it counts."""
        self._labels = dict(labels)
        self._figures = figures
        self._status, self._more = status, more
        self._nginx: tuple[Figure, ...] = ()
        self._registry = CollectorRegistry()
        self._durations = Histogram(
            "gatehouse_agent_apply_duration_seconds",
            "Duration of the steps of applying a configuration.",
            (*labels, "step"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        for step in STEPS:
            self._durations.labels(**self._labels, step=step)
        self._registry.register(self)

    def observe(self, step: str, seconds: float) -> None:
        """Take note of how long one of :data:`STEPS` took."""
        self._durations.labels(**self._labels, step=step).observe(seconds)

    async def text(self) -> bytes:
        """Give what /metrics answers, after asking NGINX."""
        body = await unix_http.get(self._status, "/status")
        self._nginx = (*_nginx(body or ""), *await self._more())
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Give the figures of the moment, for the registry."""
        yield from families((*self._figures(), *self._nginx), self._labels)


def _nginx(text: str) -> Iterator[Figure]:
    """Read the page of NGINX's stub_status; nothing of a page that is none.

    There is none where NGINX does not run, or was built without the module. The names are those
    of NGINX's own exporter, so that dashboards made for that one fit.
    """
    words = text.replace(":", " ").split()
    if len(words) != 16:
        return
    accepted, handled, requests = (float(word) for word in words[7:10])
    help_ = "Accepted client connections."
    yield Figure("nginx_connections_accepted", help_, accepted, "unknown")
    help_ = "Client connections that were handled, not dropped because of a resource limit."
    yield Figure("nginx_connections_handled", help_, handled, "unknown")
    help_ = "Client requests, including checks of the agent."
    yield Figure("nginx_http_requests", help_, requests, "counter")
    now = {"active": words[2], "reading": words[11], "writing": words[13], "waiting": words[15]}
    for state, value in now.items():
        yield Figure(f"nginx_connections_{state}", _STATUS[state], float(value))
