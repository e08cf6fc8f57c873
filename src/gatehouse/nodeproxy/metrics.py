"""What is measured on a node, in Prometheus' words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gatehouse.nodeproxy import socket_stats
from gatehouse.nodeproxy.node_network import Node
from gatehouse.nodeproxy.options import Options
from gatehouse.nodeproxy.supervisor import Supervisor

_PREFIX = "gatehouse_node_proxy"


class NodeMetrics(Collector):
    """The node's figures, and after them the proxy's own, if it is one that tells any."""

    def __init__(self, options: Options, node: Node, supervisor: Supervisor, proxy: Path) -> None:
        """``proxy``: the socket on which HAProxy tells its figures."""
        self._options, self._node, self._supervisor = options, node, supervisor
        self._proxy = proxy
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def text(self) -> bytes:
        """Give what /metrics answers."""
        return generate_latest(self._registry) + await _told(self._proxy)

    def collect(self) -> Iterator[Metric]:
        """Give the figures of the moment, for the registry."""
        node = self._node
        yield from (
            _gauge(
                "configured", "1 if the node's network is configured, else 0.", not node.trouble
            ),
            _gauge(
                "last_success_timestamp_seconds",
                "Unix time of the last check that found the node's network configured.",
                node.last_success_at,
            ),
            _gauge("proxy_up", "1 if the local proxy is running, else 0.", self._supervisor.alive),
            _gauge(
                "connections",
                "Established connections to the advertised addresses.",
                socket_stats.established(self._options),
            ),
            _counter("checks", "Checks of the node's network.", node.checks),
            _counter("repairs", "Checks that repaired the node's network.", node.repairs),
            _counter(
                "failures", "Checks that could not configure the node's network.", node.failures
            ),
            _counter(
                "proxy_restarts",
                "Restarts of the local proxy after a crash.",
                self._supervisor.restarts,
            ),
        )


def _gauge(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", help_, value)


def _counter(name: str, help_: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}_{name}", help_, value)


async def _told(path: Path) -> bytes:
    """Ask HAProxy for its figures; nothing where there is none, or none that answers."""
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
    except (OSError, TimeoutError):
        return b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return body if b" 200 " in head.partition(b"\r\n")[0] else b""
