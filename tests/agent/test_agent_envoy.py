"""An agent with a real Envoy, under a real control plane."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import structlog

from fakes import patience
from fakes.envoy_agent import options, running
from fakes.envoy_running import (
    EnvoyControlPlane,
    backend,
    cluster,
    endpoints,
    get,
    routes,
    website,
)
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.dataplane.xds.resources import (
    ResourceSet,
)

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("no_envoy_is_left")]


async def test_published_resources_are_served_when_confirmed(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    agent_options = options(
        plane,
        tmp_path,
        GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS=f"127.0.0.1:{health}",
        POD_NAMESPACE="shop",
        GATEHOUSE_AGENT_GATEWAY="web",
    )
    async with backend("one") as one, backend("two") as two, running(agent_options):
        await plane.until(lambda report: bool(report.instances))
        assert (await get(health, path="/readyz"))[0] == 503
        assert (await get(health, path="/livez"))[0] == 200
        report = await plane.served(website(port, one))
        assert report.instances[0].instance == "pod-1"
        assert report.instances[0].proxy.startswith("envoy/1.")
        assert "gatehouse.relay" in report.instances[0].features
        assert await get(port) == (200, "one")
        await plane.served(website(port, two))
        assert await get(port) == (200, "two")
        more = (cluster("other"), endpoints("other", one))
        changed = (routes("http", ("other", "other"), ("*", "web")), *more)
        await plane.served(website(port, two, *changed))
        assert await get(port, "other") == (200, "one")
        await plane.served(website(port, two))
        assert await get(port, "other") == (200, "two")
        async with patience.limit():
            while (await get(health, path="/readyz"))[0] != 200:
                await patience.pause()
        _, metrics = await get(health, path="/metrics")
        assert re.search(r"^gatehouse_agent_control_plane_connected{.*} 1\.0$", metrics, re.M)
        _, metrics = await get(health, path="/metrics/envoy")
        (total,) = re.findall(r"^envoy_http_downstream_rq_total{(.*)} 4$", metrics, re.M)
        assert 'namespace="shop",pod="pod-1",gateway="web"' in total


async def test_gateway_without_listeners_is_ready(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    health = free_port()
    agent_options = options(
        plane, tmp_path, GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS=f"127.0.0.1:{health}"
    )
    async with running(agent_options):
        await plane.until(lambda report: bool(report.instances))
        assert (await get(health, path="/readyz"))[0] == 503
        await plane.served(ResourceSet())
        async with patience.limit():
            while (await get(health, path="/readyz"))[0] != 200:
                await patience.pause()


async def test_rejected_token_is_retried_until_accepted(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    plane.token.write_text("bad")
    with structlog.testing.capture_logs() as logs:
        async with running(options(plane, tmp_path)):
            await until(lambda: any(log["event"] == "connection lost" for log in logs))
            assert not any(log["event"] == "connected" for log in logs)
            plane.token.write_text("good:pod-1")
            report = await plane.until(lambda report: bool(report.instances))
            assert report.instances[0].instance == "pod-1"


async def test_agent_sends_token_of_option(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    token = {
        "NGINX_AGENT_COMMAND_AUTH_TOKENPATH": "",
        "NGINX_AGENT_COMMAND_AUTH_TOKEN": "good:pod-1",
    }
    async with running(options(plane, tmp_path, **token)):
        report = await plane.until(lambda report: bool(report.instances))
    assert report.instances[0].instance == "pod-1"
