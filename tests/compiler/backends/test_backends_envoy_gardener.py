"""Interoperation with Gardener: its node proxy before Gatehouse's gateway, and the reverse.

Both counterparts are Envoys with static configurations that have Gardener's settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.envoy_serving import listening, serving
from fakes.envoys import ENVOY
from fakes.loopback import free_port
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster, Endpoint
from gatehouse.nodeproxy.envoy import envoy_configuration
from gatehouse.nodeproxy.options import NodeProxyOptions, parse_addresses, parse_gateway

pytestmark = pytest.mark.process

DESTINATION = "outbound|443||kube-apiserver.shoot--foo--bar.svc.cluster.local"
SOCKET = "shoot--foo--bar--kube-apiserver-socket"
TYPES = "type.googleapis.com/envoy.extensions.filters"
Part = dict[str, Any]


def at(host: str, port: int) -> Part:
    return {"address": {"socket_address": {"address": host, "port_value": port}}}


def listener(port: int, name: str, settings: Part, host: str = "127.0.0.1") -> Part:
    typed = {"name": f"envoy.filters.network.{name}", "typed_config": settings}
    return {"name": "-", **at(host, port), "filter_chains": [{"filters": [typed]}]}


def cluster(name: str, port: int, host: str = "127.0.0.1") -> Part:
    endpoints = [{"lb_endpoints": [{"endpoint": at(host, port)}]}]
    assignment = {"cluster_name": name, "endpoints": endpoints}
    return {"name": name, "connect_timeout": "5s", "load_assignment": assignment}


def static(listeners: list[Part], clusters: list[Part]) -> str:
    return json.dumps({"static_resources": {"listeners": listeners, "clusters": clusters}})


def node_of_gardener(port: int, gateway: tuple[str, int], destination: str) -> str:
    """Return the configuration of a node proxy with the settings of Gardener."""
    header = {"header": {"key": "X-Gardener-Destination", "value": destination}}
    tunnel = {"hostname": "api.seed.example.com:443", "headers_to_add": [header]}
    proxy = {
        "@type": f"{TYPES}.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "kube_apiserver",
        "cluster": "kube_apiserver",
        "tunneling_config": tunnel,
    }
    clusters = [cluster("kube_apiserver", gateway[1], gateway[0])]
    return static([listener(port, "tcp_proxy", proxy)], clusters)


def gateway_of_gardener(port: int, server: int) -> str:
    """Return the configuration of an ingress gateway with the settings of Gardener."""
    regex = r"^outbound\|443\|\|kube-apiserver\..*\.svc\.cluster\.local$"
    matcher = {"safe_regex": {"regex": regex}}
    upgrade = {"upgrade_type": "CONNECT", "connect_config": {}}
    tunnels = {
        "match": {
            "connect_matcher": {},
            "headers": [{"name": "X-Gardener-Destination", "string_match": matcher}],
        },
        "route": {"cluster_header": "X-Gardener-Destination", "upgrade_configs": [upgrade]},
    }
    others = {"match": {"connect_matcher": {}}, "redirect": {"https_redirect": True}}
    hosts = [{"name": "http-proxy", "domains": ["*"], "routes": [tunnels, others]}]
    router = {"@type": f"{TYPES}.http.router.v3.Router"}
    manager = {
        "@type": f"{TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "http_protocol_options": {"accept_http_10": True},
        "upgrade_configs": [{"upgrade_type": "CONNECT"}],
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    return static(
        [listener(port, "http_connection_manager", manager)], [cluster(DESTINATION, server)]
    )


@contextlib.asynccontextmanager
async def envoy(directory: Path, text: str) -> AsyncIterator[None]:
    file = directory / "static.json"
    file.write_text(text)
    flags = ("--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error")
    process = await asyncio.create_subprocess_exec(ENVOY, "-c", file, *flags)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def server(name: str) -> AsyncIterator[Endpoint]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(f"{name} ".encode() + line)

    async with listening(functools.partial(answer)) as endpoint:
        yield endpoint


async def is_listening(port: int) -> bool:
    """Return whether a port of this machine accepts connections."""
    with contextlib.suppress(ConnectionRefusedError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


async def response(port: int, host: str = "127.0.0.1") -> bytes:
    """Return the answer to a line, empty if the connection is closed. Wait for the proxy."""

    async def connected() -> Any:
        with contextlib.suppress(ConnectionRefusedError):
            return await asyncio.open_connection(host, port)

    reader, writer = await patience.until(connected)
    try:
        writer.write(b"hello\n")
        async with patience.limit():
            line: bytes = await reader.readline()
            return line
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("destination", "answer"),
    [(DESTINATION, b"one hello\n"), (SOCKET, b"one hello\n"), (DESTINATION + ".", b"")],
)
async def test_node_proxy_of_gardener_reaches_hosted_server(
    tmp_path: Path, destination: str, answer: bytes
) -> None:
    async with server("one") as endpoint:
        names = sorted((DESTINATION, SOCKET))
        destinations = tuple(ir.ConnectDestination(name, "one") for name in names)
        config = ir.GatewayConfiguration(
            "ns/gw",
            http_connect_listeners=(ir.HttpConnectListener(8443, destinations),),
            clusters=(Cluster("one", (endpoint,), "tcp"),),
        )
        port = free_port()
        async with serving(config) as served:
            text = node_of_gardener(port, (served.address, 8443), destination)
            async with envoy(tmp_path, text):
                assert await response(port) == answer


@pytest.mark.parametrize(("destination", "answer"), [(DESTINATION, b"one hello\n"), ("x", b"")])
async def test_node_proxy_reaches_gateway_of_gardener(
    tmp_path: Path, destination: str, answer: bytes
) -> None:
    (tmp_path / "gateway").mkdir()
    async with server("one") as endpoint:
        port = free_port()
        options = NodeProxyOptions(
            addresses=parse_addresses(("10.1.2.3",)),
            gateway=parse_gateway(f"127.0.0.1:{port}"),
            transport="connect",
            destination=destination,
            port=free_port(),
        )
        # This machine has no advertised address.
        text = envoy_configuration(options).replace('"10.1.2.3"', '"127.0.0.1"')
        async with (
            envoy(tmp_path / "gateway", gateway_of_gardener(port, endpoint.port)),
            envoy(tmp_path, text),
        ):
            await patience.until(functools.partial(is_listening, port))
            assert await response(options.port) == answer
