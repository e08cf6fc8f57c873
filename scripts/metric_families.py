"""Walk over the metric families that the code defines, for the reference page and for tests.

Objects that only provide values are replaced with :class:`Fake`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from gatehouse.agent import (
    backend_gauges,
    build_info,
    client_connections,
    request_families,
    sidecars,
)
from gatehouse.agent.access_log import LogForwarder
from gatehouse.agent.certificate_expiry import Expiry
from gatehouse.agent.configuration_state import ConfigurationState
from gatehouse.agent.connection_metrics import NGINX_CONNECTIONS, ConnectionMetrics
from gatehouse.agent.envoy import kube_metrics
from gatehouse.agent.envoy import main as envoy_agent
from gatehouse.agent.envoy import metrics as envoy_metrics
from gatehouse.agent.liveness import LivenessMonitor, LivenessPolicy
from gatehouse.agent.nginx import main as nginx_agent
from gatehouse.agent.nginx import metrics as nginx_metrics
from gatehouse.agent.nginx.endpoint_failures import EndpointFailures
from gatehouse.agent.nginx.failed_attempts import failed_attempts
from gatehouse.agent.nginx.plus import metrics as plus_metrics
from gatehouse.agent.request_lines import NGINX_LINES
from gatehouse.agent.request_metrics import RouteMetrics
from gatehouse.apiserver_extension.extension import GATEHOUSE
from gatehouse.controller import main as controller
from gatehouse.controller import metrics as controller_metrics
from gatehouse.controller.load_balancers import metrics as load_balancer_metrics
from gatehouse.nodeproxy.metrics import NodeMetrics
from gatehouse.ratelimit.metrics import ServiceMetrics as RateLimitMetrics
from gatehouse.runtime.prometheus import Sample, families
from gatehouse.sidecars.reviewer.metrics import ReviewMetrics as ReviewerMetrics
from kube_api_server.fairness.flow_control import RequestFlowControl
from kube_api_server.http.metrics import RequestMetrics as ApiServerMetrics

STATUS_PAGE = """Active connections: 1
server accepts handled requests
 1 1 1
Reading: 0 Writing: 1 Waiting: 0
"""
"""Status page of NGINX."""

_KUBE, _ENDPOINT = kube_metrics._KUBE, kube_metrics._ENDPOINT
_REQUEST = "c|get:c/schema:pods"
_MILLISECONDS = f'{_KUBE}milliseconds_bucket{{of="c|get",le="+Inf"}} 1'
ENVOY_PAGE = f"""{_KUBE}requests{{of="429|RL|10.0.0.1:6443|{_REQUEST}"}} 1
{_MILLISECONDS}
{_KUBE}milliseconds_sum{{of="c|get"}} 1
{_KUBE}milliseconds_count{{of="c|get"}} 1
{_KUBE}long_running{{of="{_REQUEST}"}} 1
{_ENDPOINT}rq_active{{envoy_cluster_name="c/s/schema",envoy_endpoint_address="10.0.0.1:6443"}} 1
{_ENDPOINT}healthy{{envoy_cluster_name="c",envoy_endpoint_address="10.0.0.1:6443"}} 1
"""
"""Statistics of an Envoy in front of kube-apiservers."""

FAILED_HANDSHAKE = (
    "2026/11/24 09:15:07 [error] 7#7: *1 SSL_do_handshake() failed while SSL handshaking to"
    ' upstream, client: 10.0.0.9, server: , request: "GET / HTTP/1.1",'
    ' upstream: "https://10.0.0.1:8443/"'
)
"""A line of the error log of NGINX."""

_TRAFFIC = {"received": 1, "sent": 1}
_ZONE = _TRAFFIC | {"processing": 1, "discarded": 1}
_PEER = _TRAFFIC | {"server": "a", "active": 1, "fails": 1, "unavail": 1, "response_time": 1}
_HTTP = {"requests": 1, "responses": {"2xx": 1}}
PLUS_VALUES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "http": (_ZONE | _HTTP, _PEER | _HTTP),
    "stream": (_ZONE | {"connections": 1, "sessions": {"2xx": 1}}, _PEER | {"connections": 1}),
}
"""Values that the API of NGINX Plus has for a server zone and for a server of an upstream."""


class Fake(MagicMock):
    """Stands for any object; its numbers are 0."""

    def __float__(self) -> float:
        return 0.0


class Family(msgspec.Struct, frozen=True):
    """Definition of a metric family."""

    name: str
    """Name without the suffix of counters."""
    kind: str
    """Prometheus type."""
    help: str
    labels: tuple[str, ...] = ()
    """Label names."""

    @property
    def series(self) -> str:
        """Name in queries."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _family(metric: Metric) -> Family:
    labels = dict.fromkeys(getattr(metric, "_labelnames", ()))
    for sample in metric.samples:
        labels |= dict.fromkeys(label for label in sample.labels if label != "le")
    return Family(metric.name, metric.type, metric.documentation, tuple(labels))


def _of_samples(samples: Iterable[Sample]) -> Iterator[Family]:
    yield from map(_family, families(samples, {}))


def _of_registry(registry: CollectorRegistry) -> Iterator[Family]:
    for collector in registry._collector_to_names:
        names = tuple(getattr(collector, "_labelnames", ()))
        for metric in collector.collect():
            yield msgspec.structs.replace(_family(metric), **({"labels": names} if names else {}))


def of_controller() -> Iterator[Family]:
    """Yield the metrics of `gatehouse controller`."""
    fake: Any = Fake()
    fake.loop.reported.return_value = (0, 0)
    fake.load_balancers.metrics.return_value = load_balancer_metrics.host_metrics([], Fake())
    metrics = controller.Controller.metrics(fake)
    histogram = controller_metrics.compile_duration_histogram()
    yield from _of_registry(controller_metrics.collector_registry(lambda: metrics, histogram))


def of_agents() -> Iterator[Family]:
    """Yield the metrics that both agents have."""
    envoy = {family.name for family in of_envoy_agent()}
    yield from (family for family in of_nginx_agent() if family.name in envoy)


def _configuration() -> ConfigurationState:
    """Return a configuration with one certificate."""
    state = ConfigurationState(lambda: "1", dict)
    state._since = 1.0
    state._expiries = {"": Expiry(1.0, "f", "d")}
    return state


def of_traffic() -> Iterator[Family]:
    """Yield the metrics of requests, connections and endpoints, which both agents have."""
    gauges = backend_gauges.backend_samples({"b": backend_gauges.EndpointCounts(1, 1)})
    yield from _of_samples([client_connections.sample(1), *gauges])
    for family in (*request_families.REQUEST_FAMILIES, *request_families.CONNECTION_FAMILIES):
        name = family.name.removesuffix("_total")
        yield Family(name, family.kind, family.help, family.labels)


def _agent() -> Any:
    """Return an agent with the parts that both kinds have."""
    fake: Any = Fake()
    fake.liveness = LivenessMonitor(LivenessPolicy(), Fake(), Fake())
    fake.build = build_info.build_sample("", "")
    fake.supervisor.access_log = LogForwarder(Path(), 1)
    fake.requests = RouteMetrics(Path(), NGINX_LINES, {})
    fake.connections = ConnectionMetrics(Path(), NGINX_CONNECTIONS, {})
    fake.configuration = _configuration()
    return fake


def of_nginx_agent() -> Iterator[Family]:
    """Yield the metrics of an agent of NGINX or NGINX Plus."""
    fake = _agent()
    fake.sidecars = [Fake()]
    fake.supervisor.failures = EndpointFailures()
    fake.supervisor.failures.count(failed_attempts([FAILED_HANDSHAKE]))
    yield from _of_samples(nginx_agent.NginxAgent.samples(fake))
    yield from of_traffic()
    page = nginx_metrics.AgentMetrics({}, lambda: (), Path(), Fake())
    yield from _of_registry(page._registry)
    yield from _of_samples(nginx_metrics._parse_stub_status(STATUS_PAGE))
    for kind, (zone, peer) in PLUS_VALUES.items():
        yield from _of_samples(plus_metrics._zones(kind, {"z": zone}))
        yield from _of_samples(plus_metrics._upstreams(kind, {"u": {"peers": [peer]}}))


def of_envoy_agent() -> Iterator[Family]:
    """Yield the metrics of an agent of Envoy, without those of Envoy itself."""
    fake = _agent()
    fake.sidecar_manager.processes = [Fake()]
    yield from _of_samples(envoy_agent.EnvoyAgent.samples(fake))
    yield from of_traffic()
    yield from _of_samples(sidecars.metrics([Fake()]))
    yield Family(envoy_metrics.TRUNCATED, "gauge", envoy_metrics.TRUNCATED_HELP)
    yield from map(_family, text_string_to_metric_families(kube_metrics.convert(ENVOY_PAGE)))


def of_reviewer() -> Iterator[Family]:
    """Yield the metrics of the reviewer, which are on the page of its agent."""
    yield from _of_registry(ReviewerMetrics({}, dict, lambda: 0)._registry)


def of_rate_limit_service() -> Iterator[Family]:
    """Yield the metrics of `gatehouse ratelimit`."""
    yield from _of_registry(RateLimitMetrics(lambda: True).registry)


def of_node_proxy() -> Iterator[Family]:
    """Yield the metrics of `gatehouse node-proxy`, without those of HAProxy."""
    options: Any = Fake()
    options.addresses = ()
    yield from _of_samples(NodeMetrics(options, Fake(), Fake(), Path()).samples())


def of_api_server() -> Iterator[Family]:
    """Yield the metrics of `gatehouse apiserver`."""
    store: Any = Fake()
    store.counts.return_value = {}
    registry = ApiServerMetrics(store, GATEHOUSE.names.metrics).registry
    RequestFlowControl(1, registry)
    yield from _of_registry(registry)


def by_process() -> dict[str, list[Family]]:
    """Return the metrics of each kind of process by a title, each family once."""
    shared = list(of_agents())
    names = {family.name for family in shared}
    return {
        "Controller": list(of_controller()),
        "Agents": shared,
        "NGINX agent": [family for family in of_nginx_agent() if family.name not in names],
        "Envoy agent": [family for family in of_envoy_agent() if family.name not in names],
        "Reviewer": list(of_reviewer()),
        "Rate limit service": list(of_rate_limit_service()),
        "Node proxy": list(of_node_proxy()),
        "API server": list(of_api_server()),
    }
