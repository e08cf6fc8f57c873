"""Prometheus metrics of the NGINX agent and its NGINX."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gatehouse.runtime import unix_http
from gatehouse.runtime.prometheus import Sample, families

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Histogram buckets in seconds, from an endpoint update to `nginx -t` of thousands of servers."""

STEPS = ("fetch", "test", "reload", "confirm")
"""Measured steps: download, `nginx -t`, until only new workers accept, until confirmed."""

_STATUS = {
    "active": "Client connections, including idle ones.",
    "reading": "Connections whose request header is being read.",
    "writing": "Connections whose response is being written.",
    "waiting": "Idle client connections.",
}


class AgentMetrics(Collector):
    """Collector of all metrics, each with the labels of this data plane."""

    def __init__(
        self,
        labels: Mapping[str, str],
        samples: Callable[[], Iterable[Sample]],
        status: Path | None,
        more: Callable[[], Awaitable[Iterable[Sample]]],
    ) -> None:
        """Create the collector.

        `status`: socket of NGINX's status page. None: NGINX has no such page. `more` returns the
        metrics that require I/O.
        """
        self._labels = dict(labels)
        self._samples = samples
        self._status, self._more = status, more
        self._nginx: tuple[Sample, ...] = ()
        self._registry = CollectorRegistry()
        self._durations = Histogram(
            "gatehouse_agent_apply_duration_seconds",
            "Duration of a step of a configuration apply.",
            (*labels, "step"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        for step in STEPS:
            self._durations.labels(**self._labels, step=step)
        self._registry.register(self)

    def observe(self, step: str, seconds: float) -> None:
        """Record the duration of one of :data:`STEPS`."""
        self._durations.labels(**self._labels, step=step).observe(seconds)

    async def text(self) -> bytes:
        """Return the /metrics page, after querying NGINX."""
        # NGINX would write an error to its log for a page that it does not have.
        body = await unix_http.get(self._status, "/status") if self._status else None
        self._nginx = (*_parse_stub_status(body or ""), *await self._more())
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics for the registry."""
        yield from families((*self._samples(), *self._nginx), self._labels)


def _parse_stub_status(text: str) -> Iterator[Sample]:
    """Parse NGINX's stub_status page. Yields nothing for any other text.

    The page is missing while NGINX does not run, or if it was built without the module. The names
    are those of NGINX's own exporter, so its dashboards work.
    """
    words = text.replace(":", " ").split()
    if len(words) != 16:
        return
    accepted, handled, requests = (float(word) for word in words[7:10])
    help_ = "Accepted client connections."
    yield Sample("nginx_connections_accepted", help_, accepted, "unknown")
    help_ = "Client connections not dropped for lack of resources."
    yield Sample("nginx_connections_handled", help_, handled, "unknown")
    help_ = "Client requests, including the agent's own checks."
    yield Sample("nginx_http_requests", help_, requests, "counter")
    now = {"active": words[2], "reading": words[11], "writing": words[13], "waiting": words[15]}
    for state, value in now.items():
        yield Sample(f"nginx_connections_{state}", _STATUS[state], float(value))
