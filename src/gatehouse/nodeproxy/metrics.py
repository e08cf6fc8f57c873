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
            _gauge("in_order", "Whether the node's network is as it should be.", not node.trouble),
            _gauge("in_order_seconds", "When it was found in order last.", node.last_success_at),
            _gauge("proxy_up", "Whether the local proxy runs.", self._supervisor.alive),
            _gauge(
                "connections",
                "Established connections to the advertised addresses.",
                socket_stats.established(self._options),
            ),
            _counter("looks", "How often the node's network was looked at.", node.checks),
            _counter("repairs", "How often it was found changed, and mended.", node.repairs),
            _counter("failures", "How often it could not be put in order.", node.failures),
            _counter(
                "proxy_restarts",
                "How often the local proxy died and was replaced.",
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
