"""Every metric family that the code defines follows the conventions of Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from prometheus_client.metrics_core import Metric

from gatehouse.agent import sidecars
from gatehouse.agent.envoy import kube_metrics
from gatehouse.agent.envoy import main as envoy_agent
from gatehouse.agent.nginx import main as nginx_agent
from gatehouse.agent.nginx import metrics as nginx_metrics
from gatehouse.agent.nginx.plus import metrics as plus_metrics
from gatehouse.apiserver.http.metrics import Metrics as ApiServerMetrics
from gatehouse.controller import main as controller
from gatehouse.controller import metrics as controller_metrics
from gatehouse.controller.load_balancers import metrics as load_balancer_metrics
from gatehouse.nodeproxy.metrics import NodeMetrics
from gatehouse.ratelimit.metrics import ServiceMetrics as RateLimitMetrics
from gatehouse.runtime.prometheus import Sample, families
from gatehouse.sidecars.reviewer.metrics import ReviewMetrics as ReviewerMetrics

STATUS_PAGE = """Active connections: 1
server accepts handled requests
 1 1 1
Reading: 0 Writing: 1 Waiting: 0
"""

NOT_BASE_UNITS = ("_milliseconds", "_microseconds", "_minutes", "_hours", "_kilobytes", "_percent")
DIALECT = ("in_order", "asked", "kept", "wanted", "companion", "looks", "behind", "agreed", "cut")


class Fake(MagicMock):
    """Stands for any object; its numbers are 0."""

    def __float__(self) -> float:
        return 0.0


def of_samples(samples: Iterable[Sample]) -> Iterator[Metric]:
    yield from families(samples, {})


def of_controller() -> Iterator[Metric]:
    fake: Any = Fake()
    fake.loop.reported.return_value = (0, 0)
    fake.load_balancers.metrics.return_value = load_balancer_metrics.host_metrics([], Fake())
    metrics = controller.Controller.metrics(fake)
    histogram = controller_metrics.compile_duration_histogram()
    yield from controller_metrics.collector_registry(lambda: metrics, histogram).collect()


def of_nginx_agent() -> Iterator[Metric]:
    fake: Any = Fake()
    fake.sidecars = [Fake()]
    yield from of_samples(nginx_agent.Agent.samples(fake))
    page = nginx_metrics.AgentMetrics({}, lambda: (), Path(), Fake())
    yield from page._registry.collect()
    yield from of_samples(nginx_metrics._parse_stub_status(STATUS_PAGE))
    counted: dict[str, Any] = dict.fromkeys((*plus_metrics._COUNTERS, *plus_metrics._GAUGES), 1)
    counted |= {"server": "a", "responses": {"2xx": 1}, "sessions": {"2xx": 1}}
    for kind in ("http", "stream"):
        yield from of_samples(plus_metrics._zones(kind, {"z": counted}))
        yield from of_samples(plus_metrics._upstreams(kind, {"u": {"peers": [counted]}}))


def of_envoy_agent() -> Iterator[Metric]:
    fake: Any = Fake()
    fake.sidecar_manager.processes = [Fake()]
    yield from of_samples(envoy_agent.Agent.samples(fake))
    yield from of_samples(sidecars.metrics([Fake()]))
    for name, (kind, text) in kube_metrics._FAMILIES.items():
        yield Metric(f"gatehouse_kube_{name}".removesuffix("_total"), text, kind)


def of_sidecars_and_services() -> Iterator[Metric]:
    yield from ReviewerMetrics({}, dict, lambda: 0)._registry.collect()
    yield from RateLimitMetrics(lambda: True).registry.collect()
    options: Any = Fake()
    options.addresses = ()
    node = NodeMetrics(options, Fake(), Fake(), Path())
    yield from node.collect()


def of_api_server() -> Iterator[Metric]:
    store: Any = Fake()
    store.counts.return_value = {}
    yield from ApiServerMetrics(store).registry.collect()


FAMILIES = {
    metric.name: metric
    for source in (
        of_controller,
        of_nginx_agent,
        of_envoy_agent,
        of_sidecars_and_services,
        of_api_server,
    )
    for metric in source()
}


def test_walk_finds_all_prefixes() -> None:
    assert {
        "gatehouse_controller_compile_duration_seconds",
        "gatehouse_controller_load_balancer_last_sync_timestamp_seconds",
        "gatehouse_agent_control_plane_connected",
        "gatehouse_agent_apply_duration_seconds",
        "gatehouse_agent_sidecar_up",
        "gatehouse_kube_request_duration_seconds",
        "gatehouse_node_proxy_configured",
        "gatehouse_ratelimit_requests",
        "gatehouse_reviewer_cache_entries",
        "gatehouse_apiserver_storage_revision",
        "apiserver_request",
        "nginx_plus_http_server_requests",
    } <= set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_metric_follows_conventions(name: str) -> None:
    metric = FAMILIES[name]
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name)
    # The library adds _total to the samples of counters, and only to these.
    assert not name.endswith(("_total", "_count", "_sum", "_bucket"))
    assert not name.endswith(NOT_BASE_UNITS)
    assert metric.type in ("gauge", "counter", "histogram", "unknown")
    if metric.type == "histogram":
        assert name.endswith("_duration_seconds")
    if name.endswith("_timestamp_seconds"):
        assert metric.documentation.startswith("Unix time")
    assert not set(DIALECT) & {*name.split("_"), *re.findall("in_order", name)}


@pytest.mark.parametrize("name", FAMILIES)
def test_metric_help_is_a_sentence(name: str) -> None:
    text = FAMILIES[name].documentation
    assert re.match(r"[A-Z1]|xDS", text), text
    assert text.endswith("."), text
    assert not re.match(r"(What|Whether|How|When|Who)\b", text), text
