"""Metrics of kube-apiserver requests of an agent with Envoy."""

from __future__ import annotations

import os
import re
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from fakes import kube_upstream, patience
from fakes.authority import Authority
from fakes.envoy_agent import envoys, options, running
from fakes.envoy_running import EnvoyControlPlane
from fakes.loopback import free_port
from gatehouse.agent.envoy import kube_metrics
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.sidecars.base import control
from gatehouse.sidecars.reviewer import config

HOST = "a.kube.test"

ENVOYS = """\
# TYPE envoy_gatehouse_kube_requests counter
envoy_gatehouse_kube_requests{of="200|-|1.2.3.4:1|c|get             :flow/c/s%22%5C%0A:pods"} 2
envoy_gatehouse_kube_requests{of="200|DC|1.2.3.4:1|c|get             :flow/c/s%22%5C%0A:pods"} \
10000000
envoy_gatehouse_kube_requests{of="503|UF,URX|[::1]:1|c|get             :flow/c/:pods"} 1
envoy_gatehouse_kube_requests{of="418|-||c%22d|"} 1
envoy_gatehouse_kube_requests{of="0|DC||c|"} 1
# TYPE envoy_gatehouse_kube_milliseconds histogram
envoy_gatehouse_kube_milliseconds_bucket{of="c|get             ",le="5"} 1
envoy_gatehouse_kube_milliseconds_bucket{of="c|get             ",le="+Inf"} 2
envoy_gatehouse_kube_milliseconds_sum{of="c|get             "} 1500
envoy_gatehouse_kube_milliseconds_count{of="c|get             "} 2
envoy_gatehouse_kube_milliseconds_count{of="c|:api/6443/c"} 2
# TYPE envoy_cluster_endpoint_rq_active gauge
envoy_cluster_endpoint_rq_active{envoy_cluster_name="kube_c/flow/s%22",\
envoy_endpoint_address="1.2.3.4:1",envoy_endpoint_hostname="x"} 1
envoy_cluster_endpoint_rq_active{envoy_cluster_name="kube_c/flow/s%22/upgrades",\
envoy_endpoint_address="1.2.3.4:1"} 2
# TYPE envoy_cluster_endpoint_healthy gauge
envoy_cluster_endpoint_healthy{envoy_cluster_name="kube_c",envoy_endpoint_address="1.2.3.4:1"} 1
envoy_cluster_endpoint_healthy{envoy_cluster_name="kube_c/upgrades",\
envoy_endpoint_address="1.2.3.4:1"} 0
envoy_cluster_endpoint_unheard_of{envoy_cluster_name="kube_c"} 0
# TYPE envoy_server_live gauge
envoy_server_live{} 1
"""

OURS = r"""
gatehouse_kube_requests_total{cluster="c",verb="get",resource="pods",schema="s\"\\\n",code="200",server="1.2.3.4:1"} 10000002
gatehouse_kube_requests_total{cluster="c",verb="get",resource="pods",code="503",server="[::1]:1"} 1
gatehouse_kube_requests_total{cluster="c\"d",code="418"} 1
gatehouse_kube_requests_total{cluster="c",code="0"} 1
gatehouse_kube_rejected_requests_total{cluster="c",reason="server_unreachable"} 1
gatehouse_kube_rejected_requests_total{cluster="c\"d",reason="other"} 1
gatehouse_kube_request_duration_seconds_bucket{cluster="c",verb="get",le="0.005"} 1
gatehouse_kube_request_duration_seconds_bucket{cluster="c",verb="get",le="+Inf"} 2
gatehouse_kube_request_duration_seconds_sum{cluster="c",verb="get"} 1.5
gatehouse_kube_request_duration_seconds_count{cluster="c",verb="get"} 2
gatehouse_kube_inflight_requests{cluster="c",schema="s\"",server="1.2.3.4:1"} 3
gatehouse_kube_server_healthy{cluster="c",server="1.2.3.4:1"} 1
""".strip()  # noqa: E501


def test_envoy_statistics_are_converted() -> None:
    result = kube_metrics.convert(ENVOYS)
    assert [
        splitline for splitline in result.splitlines() if not splitline.startswith("#")
    ] == OURS.split("\n")
    assert "# TYPE gatehouse_kube_request_duration_seconds histogram\n" in result
    assert "envoy_" not in result
    assert kube_metrics.convert("") == ""


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    reviewer = control.pid(tmp_path / "run" / config.REVIEWER_SOCKETS)
    for pid in (*envoys(tmp_path), *filter(None, [reviewer])):
        os.kill(pid, signal.SIGKILL)


def gateway(authority: Authority, port: int, server: int) -> ir_gateway.GatewayConfiguration:
    chain, key = authority.issue(HOST)
    certificate = ir_gateway.Certificate(
        "c", chain.read_bytes(), ir_gateway.SecretBytes(key.read_bytes())
    )
    rule = ir.DispatchRule(verbs=ir.ANY, groups=ir.ANY, resources=ir.ANY, paths=ir.ANY)
    servers = (ir.KubeApiServer("http://one", "127.0.0.1", server),)
    cluster = ir.ApiCluster(HOST, (HOST,), servers, (ir.DispatchPolicy((rule,)),))
    listener = ir.ApiListener(port, (cluster,), ("c",))
    return ir_gateway.GatewayConfiguration(
        "ns/gw", api_listeners=(listener,), certificates=(certificate,), bind_address="127.0.0.1"
    )


@pytest.mark.long
@pytest.mark.process
async def test_agent_metrics_have_data_plane_labels(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, health = free_port(), f"127.0.0.1:{free_port()}"
    chosen = msgspec.structs.replace(options(plane, tmp_path), health_address=health)
    authority = Authority(tmp_path, "servers")
    trust = ssl.create_default_context(cafile=str(authority.file))
    async with kube_upstream.serving("one", None) as upstream, running(chosen):
        generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(
            gateway(authority, port, upstream.port)
        )
        await plane.served(generated.resources)
        async with aiohttp.ClientSession() as http:

            async def page() -> str:
                async with http.get(f"http://{health}/metrics") as answer:
                    return await answer.text()

            url = f"https://127.0.0.1:{port}/api/v1/pods"
            headers = {"Host": HOST}
            async with patience.limit():
                while True:
                    sent = http.get(url, headers=headers, ssl=trust, server_hostname=HOST)
                    async with sent as answer:
                        if answer.status == 200:
                            break
                    await patience.pause()
                pattern = (
                    r'^gatehouse_kube_request_duration_seconds_bucket{.*,verb="list",le="([^"]*)",'
                )
                while not (bounds := re.findall(pattern, text := await page(), re.M)):
                    await patience.pause()
        assert bounds == [*(f"{bound / 1000:g}" for bound in kube_metrics.BUCKETS), "+Inf"]
        server = f'server="127.0.0.1:{upstream.port}"'
        own = 'pod="pod-1"'
        what = f'cluster="{HOST}",verb="list",resource="pods"'
        assert f'\ngatehouse_kube_requests_total{{{what},code="200",{server},{own}}} 1\n' in text
        assert f'\ngatehouse_kube_server_healthy{{cluster="{HOST}",{server},{own}}} 1\n' in text
