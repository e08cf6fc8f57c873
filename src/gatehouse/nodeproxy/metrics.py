"""Prometheus metrics of the node proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gatehouse.nodeproxy import socket_stats
from gatehouse.nodeproxy.node_network import NodeNetwork
from gatehouse.nodeproxy.options import NodeProxyOptions
from gatehouse.nodeproxy.supervisor import LocalProxySupervisor
from gatehouse.runtime import prometheus, unix_http
from gatehouse.runtime.prometheus import Sample

_PREFIX = "gatehouse_node_proxy"


class NodeMetrics:
    """Metrics of the node, followed by those of the proxy if it is HAProxy."""

    def __init__(
        self,
        options: NodeProxyOptions,
        node: NodeNetwork,
        supervisor: LocalProxySupervisor,
        proxy: Path,
    ) -> None:
        """`proxy`: metrics socket of HAProxy."""
        self._options, self._node, self._supervisor = options, node, supervisor
        self._proxy = proxy

    async def text(self) -> bytes:
        """Return the /metrics page."""
        own = prometheus.format_samples(self.samples())
        return (own + (await unix_http.get(self._proxy, "/metrics") or "")).encode()

    def samples(self) -> Iterator[Sample]:
        """Yield the current metrics."""
        node = self._node
        gauges: dict[str, tuple[str, float]] = {
            "configured": (
                "1 if the node's network is configured as desired, else 0.",
                not node.problem,
            ),
            "last_success_timestamp_seconds": (
                "Unix time of the last successful check, 0 if none.",
                node.last_success_at,
            ),
            "proxy_up": ("1 if the local proxy runs, else 0.", self._supervisor.running),
            "connections": (
                "Established connections to the advertised addresses.",
                socket_stats.established_connections(self._options),
            ),
        }
        counters = {
            "checks": ("Checks of the node's network.", node.checks),
            "repairs": ("Checks that corrected a change of the node's network.", node.repairs),
            "failures": ("Checks that failed to correct the node's network.", node.failures),
            "proxy_restarts": (
                "Local proxy processes that died and were replaced.",
                self._supervisor.restarts,
            ),
        }
        for name, (help_, value) in gauges.items():
            yield Sample(f"{_PREFIX}_{name}", help_, value)
        for name, (help_, value) in counters.items():
            yield Sample(f"{_PREFIX}_{name}", help_, value, "counter")
