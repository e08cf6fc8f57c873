"""Prometheus metrics of the node proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gatehouse.nodeproxy import socket_stats
from gatehouse.nodeproxy.node_network import NodeNetwork
from gatehouse.nodeproxy.options import Options
from gatehouse.nodeproxy.supervisor import Supervisor

_PREFIX = "gatehouse_node_proxy"


class NodeMetrics(Collector):
    """Collector of the node's metrics, followed by those of the proxy if it is HAProxy."""

    def __init__(
        self, options: Options, node: NodeNetwork, supervisor: Supervisor, proxy: Path
    ) -> None:
        """`proxy`: metrics socket of HAProxy."""
        self._options, self._node, self._supervisor = options, node, supervisor
        self._proxy = proxy
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def text(self) -> bytes:
        """Return the /metrics page."""
        return generate_latest(self._registry) + await _proxy_metrics(self._proxy)

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics for the registry."""
        node = self._node
        yield from (
            _gauge(
                "configured",
                "1 if the node's network is configured as desired, else 0.",
                not node.problem,
            ),
            _gauge(
                "last_success_timestamp_seconds",
                "Unix time of the last successful check, 0 if none.",
                node.last_success_at,
            ),
            _gauge("proxy_up", "1 if the local proxy runs, else 0.", self._supervisor.running),
            _gauge(
                "connections",
                "Established connections to the advertised addresses.",
                socket_stats.established(self._options),
            ),
            _counter("checks", "Checks of the node's network.", node.checks),
            _counter(
                "repairs", "Checks that corrected a change of the node's network.", node.repairs
            ),
            _counter(
                "failures", "Checks that failed to correct the node's network.", node.failures
            ),
            _counter(
                "proxy_restarts",
                "Local proxy processes that died and were replaced.",
                self._supervisor.restarts,
            ),
        )


def _gauge(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", help_, value)


def _counter(name: str, help_: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}_{name}", help_, value)


async def _proxy_metrics(path: Path) -> bytes:
    """Return the metrics page of HAProxy. Empty if there is none or it does not respond."""
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            response = await reader.read()
            writer.close()
    except (OSError, TimeoutError):
        return b""
    head, _, body = response.partition(b"\r\n\r\n")
    return body if b" 200 " in head.partition(b"\r\n")[0] else b""
