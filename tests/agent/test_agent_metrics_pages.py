"""Pages of metrics of real agents with a real NGINX and a real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from fakes import agent_command, envoy_serving, patience, promtool
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.authority import Authority
from fakes.envoy_running import EnvoyControlPlane, get
from fakes.logged_gateways import PROXIES
from fakes.loopback import free_port
from fakes.nginx_agent import get as get_plain
from gatehouse.agent.envoy.metrics import raw_page
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.controller import pipelines
from gatehouse.dataplane import features, request_log
from gatehouse.dataplane.delivery import InstanceCapabilities
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL

pytestmark = pytest.mark.process

Samples = dict[tuple[str, ...], float]
"""Values by the name and the labels, except those of the data plane."""

SHARED = {
    "gatehouse_route_requests", "gatehouse_route_request_duration_seconds",
    "gatehouse_route_upstream_duration_seconds", "gatehouse_route_bytes",
    "gatehouse_route_retries", "gatehouse_backend_requests", "gatehouse_client_connections",
    "gatehouse_agent_configuration_info", "gatehouse_agent_configuration_timestamp_seconds",
    "gatehouse_certificate_not_after_timestamp_seconds",
    "gatehouse_agent_request_log_dropped_bytes", "gatehouse_agent_ready",
}  # fmt: skip
"""Families that both pages must have."""


class Agent(msgspec.Struct, frozen=True):
    """An agent that serves a gateway."""

    port: int
    health: int
    version: str
    log: Path

    async def page(self, path: str = "/metrics") -> str:
        """Return a page of metrics."""
        status, text = await get(self.health, path=path)
        assert status == 200
        return text

    async def samples(self) -> Samples:
        """Return all samples of the page."""
        result: Samples = {}
        for family in text_string_to_metric_families(await self.page()):
            for sample in family.samples:
                labels = dict(sample.labels)
                own = [labels.pop(name) for name in ("namespace", "pod", "gateway")]
                assert own == ["shop", "pod-1", "web"], sample
                result[sample.name, *(f"{k}={v}" for k, v in sorted(labels.items()))] = sample.value
        return result

    async def until(self, condition: Callable[[Samples], Any]) -> Samples:
        """Wait for samples that fulfil a condition."""
        samples: Samples = {}
        async with patience.limit():
            while not condition(samples):
                await patience.pause()
                samples = await self.samples()
        return samples


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _gateway(
    port: int, endpoint: ir.Endpoint, chain: Path, key: Path
) -> ir_gateway.GatewayConfiguration:
    certificate = ir_gateway.Certificate(
        "cert", chain.read_bytes(), ir_gateway.SecretBytes(key.read_bytes())
    )
    route = envoy_serving.route_to("c", "shop/web/0/0")
    plain = envoy_serving.host("a.example", route)
    secure = envoy_serving.host("a.example", certificates=("cert",))
    listeners = (
        ir_gateway.Listener(port, "HTTP", (plain,)),
        ir_gateway.Listener(free_port(), "HTTPS", (secure,)),
    )
    clusters = (
        ir.Cluster("c", (endpoint,), origin=Origin("Service", "shop", "web")),
        ir.Cluster("none", (), origin=Origin("Service", "shop", "none")),
    )
    return ir_gateway.GatewayConfiguration(
        "shop/web", bind_address="127.0.0.1", listeners=listeners, clusters=clusters,
        certificates=(certificate,),
    )  # fmt: skip


@contextlib.asynccontextmanager
async def _serving(proxy: str, directory: Path, chain: Path, key: Path) -> AsyncIterator[Agent]:
    port, health, log = free_port(), free_port(), directory / "log"
    (directory / "control-plane").mkdir()
    planes = {"nginx": ControlPlane, "envoy": EnvoyControlPlane}
    plane = planes[proxy](directory / "control-plane")
    await plane.start()
    environ = plane.environment(directory) | {
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}",
        "POD_NAMESPACE": "shop",
        "GATEHOUSE_AGENT_GATEWAY": "web",
    }
    try:
        async with (
            envoy_serving.backend("one") as endpoint,
            agent_command.agent(environ, log, "--proxy", proxy),
        ):
            await plane.until(lambda report: bool(report.equipment))
            gateway = _gateway(port, endpoint, chain, key)
            if isinstance(plane, EnvoyControlPlane):
                able = pipelines.envoy_pipeline(plane.server.envoys).capabilities(GATEWAY)
                assert able is not None
                resources = envoy.EnvoyGenerator(able).generate(gateway).resources
                await plane.served(resources)
                version = resources.version
            else:
                capable = pipelines.nginx_pipeline(plane.server).capabilities(GATEWAY)
                assert capable is not None
                assert capable.access_log
                files = nginx.NginxGenerator(capable).generate(gateway).file_set
                await plane.programmed(files)
                version = files.version
            yield Agent(port, health, version, log)
    finally:
        await plane.server.stop(0.1)


def _requests(samples: Samples) -> float:
    name = "gatehouse_route_requests_total"
    return sum(value for key, value in samples.items() if key[0] == name)


@pytest.fixture
def issued(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for ``a.example`` that expires in ten days."""
    authority = Authority(tmp_path, "authority")
    return authority.issue("a.example", x509.DNSName("a.example"), ends=timedelta(days=10))


async def test_page_has_the_same_metrics_on_both_proxies(
    proxy: str, tmp_path: Path, issued: tuple[Path, Path]
) -> None:
    async with _serving(proxy, tmp_path, *issued) as agent:
        before = time.time()
        assert (await get(agent.port, "a.example"))[0] == 200
        assert (await get(agent.port, "b.example"))[0] == 404
        _, writer = await asyncio.open_connection("127.0.0.1", agent.port)
        version = ("gatehouse_agent_configuration_info", f"version={agent.version}")
        samples = await agent.until(
            lambda samples: (
                _requests(samples) == 2
                and version in samples
                and ("gatehouse_certificate_not_after_timestamp_seconds" in str(samples))
            )
        )
        requests = {key[1:]: samples[key] for key in samples if key[0].endswith("_requests_total")}
        assert (
            requests.items()
            >= {
                ("method=GET", "route=shop/web/0", "status_class=2xx"): 1,
                ("method=GET", "route=", "status_class=4xx"): 1,
                ("backend=Service/shop/web", "reason=", "status_class=2xx"): 1,
            }.items()
        )
        since = samples["gatehouse_agent_configuration_timestamp_seconds",]
        assert before - 60 < since <= time.time()
        certificates = [key for key in samples if "certificate_not_after" in key[0]]
        leaf = x509.load_pem_x509_certificate(issued[0].read_bytes())
        assert [samples[key] for key in certificates] == [leaf.not_valid_after_utc.timestamp()]
        assert "dns_name=a.example" in certificates[0]
        assert samples["gatehouse_client_connections",] >= 1
        families = {family.name for family in text_string_to_metric_families(await agent.page())}
        assert families >= SHARED
        writer.close()
        await agent.until(lambda samples: samples.get(("gatehouse_client_connections",)) == 0)


async def test_pages_are_clean(proxy: str, tmp_path: Path, issued: tuple[Path, Path]) -> None:
    async with _serving(proxy, tmp_path, *issued) as agent:
        assert (await get(agent.port, "a.example"))[0] == 200
        await agent.until(lambda samples: any(k[0].startswith("gatehouse_route") for k in samples))
        assert await promtool.check(await agent.page()) == ""


async def test_scrape_writes_no_error_to_the_log_of_nginx(
    tmp_path: Path, issued: tuple[Path, Path]
) -> None:
    async with _serving("nginx", tmp_path, *issued) as agent:
        for _ in range(3):
            await agent.page()
        # The request is logged when the next one is answered, at the latest.
        assert (await get_plain(agent.port))[0] == 404
    # NGINX and the agent have ended.
    errors = (tmp_path / "run" / "error.log").read_text()
    assert "/status" not in errors, errors
    assert "/status" not in agent.log.read_text()


async def test_own_metrics_of_envoy_have_a_page(tmp_path: Path, issued: tuple[Path, Path]) -> None:
    async with _serving("envoy", tmp_path, *issued) as agent:
        assert (await get(agent.port, "a.example"))[0] == 200
        assert "envoy_cluster" not in await agent.page()
        text = await agent.page("/metrics/envoy")
        assert 'envoy_cluster_upstream_rq_total{envoy_cluster_name="c",namespace="shop"' in text


async def test_endpoints_of_backends_are_counted(
    proxy: str, tmp_path: Path, issued: tuple[Path, Path]
) -> None:
    known, healthy = "gatehouse_backend_endpoints", "gatehouse_backend_healthy_endpoints"
    names = {"web": "backend=Service/shop/web", "none": "backend=Service/shop/none"}
    expected = {(known, names["web"]): 1, (known, names["none"]): 0}
    if proxy == "envoy":
        expected |= {(healthy, names["web"]): 1, (healthy, names["none"]): 0}
    async with _serving(proxy, tmp_path, *issued) as agent:
        await agent.until(
            lambda samples: (
                expected
                == {key: value for key, value in samples.items() if key[0] in (known, healthy)}
            )
        )


@pytest.mark.parametrize("others", [[], [frozenset()], [frozenset({features.RELAY})]])
async def test_envoy_writes_no_request_log_while_any_agent_would_not_empty_it(
    plane: EnvoyControlPlane, others: list[frozenset[str]]
) -> None:
    able = frozenset({features.RELAY, features.ENVOY_REQUEST_COUNTS})
    instances = [InstanceCapabilities("envoy/1", (), known) for known in [able, *others]]
    pipeline = pipelines.envoy_pipeline(plane.server.envoys)
    capabilities = pipeline.common_capabilities(frozenset(instances))
    assert capabilities is not None
    assert capabilities.request_counts == (not others)
    gateway = envoy_serving.plain([envoy_serving.host("a.example")])
    resources = envoy.EnvoyGenerator(capabilities).generate(gateway).resources
    (listener,) = resources.by_type[LISTENER_TYPE_URL].values()
    assert (request_log.FILE.encode() in listener.body) == (not others)


@pytest.mark.parametrize(("days", "shows"), [(4294967295, False), (29, True), (0, True)])
def test_expiry_is_missing_if_envoy_has_no_certificate(days: int, shows: bool) -> None:
    text = f"envoy_server_live{{}} 1\nenvoy_server_days_until_first_cert_expiring{{}} {days}\n"
    lines = raw_page(text, {"pod": "p"}).decode().splitlines()
    assert lines[0] == 'envoy_server_live{pod="p"} 1'
    assert len(lines) == 1 + shows
