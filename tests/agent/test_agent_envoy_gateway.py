"""A Gateway in IR end to end: back end, control plane, relay, Envoy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes import envoy_serving
from fakes.envoy_agent import options, running
from fakes.envoy_running import EnvoyControlPlane, get
from fakes.loopback import free_port
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir

pytestmark = pytest.mark.process


def gateway(
    port: int, hosts: tuple[ir.VirtualHost, ...], *clusters: ir.Cluster
) -> ir_gateway.GatewayConfiguration:
    listener = ir_gateway.Listener(port, "HTTP", hosts)
    return ir_gateway.GatewayConfiguration(
        "ns/gw", bind_address="127.0.0.1", listeners=(listener,), clusters=clusters
    )


async def test_hostnames_are_added_changed_and_removed(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    generator, port = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()), free_port()
    async with (
        running(options(plane, tmp_path)),
        envoy_serving.backend("one") as one,
        envoy_serving.backend("two") as two,
    ):

        async def served(*hosts: ir.VirtualHost, **clusters: ir.Endpoint) -> None:
            cluster_list = [ir.Cluster(name, (end,)) for name, end in sorted(clusters.items())]
            generated = generator.generate(gateway(port, hosts, *cluster_list))
            plane.publish(generated.resources)
            await plane.served(generated.resources)

        async def asked(host: str) -> str:
            status, text = await get(port, host)
            return str(json.loads(text)["service"]) if status == 200 else str(status)

        wide = envoy_serving.host("*.example", envoy_serving.route_to("one"))
        exact = envoy_serving.host("a.example", envoy_serving.route_to("two"))
        await served(wide, one=one)
        assert [await asked(name) for name in ("a.example", "b.test")] == ["one", "404"]
        await served(wide, exact, one=one, two=two)
        assert [await asked(name) for name in ("A.example", "b.example")] == ["two", "one"]
        await served(wide, exact, one=one, two=one)
        assert await asked("a.example") == "one"
        await served(exact, two=one)
        assert [await asked(name) for name in ("a.example", "b.example")] == ["one", "404"]
