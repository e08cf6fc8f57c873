"""Reasons in responses without a ready server: an agent with its Envoy and reviewer."""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes import kube_upstream, patience
from fakes.authority import Authority
from fakes.envoy_agent import envoys, options, running
from fakes.envoy_running import EnvoyControlPlane
from fakes.loopback import free_port
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.sidecars.base import control
from gatehouse.sidecars.reviewer import config

pytestmark = pytest.mark.process

HOST = "a.kube.test"


@pytest.fixture(autouse=True)
def processes_end(tmp_path: Path) -> Iterator[None]:
    yield
    reviewer = control.pid(tmp_path / "run" / config.REVIEWER_SOCKETS)
    for pid in (*envoys(tmp_path), *filter(None, [reviewer])):
        os.kill(pid, signal.SIGKILL)


def gateway(authority: Authority, port: int, *servers: int) -> ir_gateway.GatewayConfiguration:
    chain, key = authority.issue(HOST)
    secret = ir_gateway.SecretBytes(key.read_bytes())
    rule = ir.DispatchRule(verbs=ir.ANY, groups=ir.ANY, resources=ir.ANY, paths=ir.ANY)
    cluster = ir.ApiCluster(
        HOST,
        (HOST,),
        tuple(ir.KubeApiServer(f"http://{number}", "127.0.0.1", number) for number in servers),
        (ir.DispatchPolicy((rule,)),),
        client_trust="clients",
    )
    return ir_gateway.GatewayConfiguration(
        "ns/gw",
        api_listeners=(ir.ApiListener(port, (cluster,), ("c",)),),
        certificates=(ir_gateway.Certificate("c", chain.read_bytes(), secret),),
        trust_bundles=(ir_gateway.TrustBundle("clients", authority.pem),),
        bind_address="127.0.0.1",
    )


async def test_authenticated_clients_see_reasons_of_the_agent(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, closed = free_port(), free_port()
    authority = Authority(tmp_path, "servers")
    anonymous = ssl.create_default_context(cafile=str(authority.file))
    alice = ssl.create_default_context(cafile=str(authority.file))
    alice.load_cert_chain(*authority.issue_to("alice"))

    async def message(http: aiohttp.ClientSession, context: ssl.SSLContext) -> str:
        url = f"https://127.0.0.1:{port}/api/v1/pods"
        request = http.get(url, headers={"Host": HOST}, ssl=context, server_hostname=HOST)
        async with request as response:
            document: dict[str, Any] = await response.json(content_type=None)
            return str(document.get("message", ""))

    async with kube_upstream.serving("one", None) as upstream, running(options(plane, tmp_path)):
        upstream.ready = False
        generator = envoy.EnvoyGenerator(envoy.EnvoyCapabilities(runtime_limits=True))
        generated = generator.generate(gateway(authority, port, upstream.port, closed))
        await plane.served(generated.resources)
        reasons = {
            f"127.0.0.1:{upstream.port}": "/readyz: status 500",
            f"127.0.0.1:{closed}": "connection refused",
        }
        summary = "; ".join(f"{server}: {why}" for server, why in sorted(reasons.items()))
        current = ""
        async with aiohttp.ClientSession() as http, patience.limit():
            while current != f"no ready endpoints: {summary}":
                current = await message(http, alice)
                await patience.pause()
            assert await message(http, anonymous) == "no ready endpoints"
