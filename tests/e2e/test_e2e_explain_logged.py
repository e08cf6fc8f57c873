"""`gatehouse explain --send`: causes that only a request or connection shows."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from click.testing import CliRunner

from fakes import request_causes
from fakes.authority import Authority
from fakes.installation import BACKEND, Installation, apply, holds
from fakes.patience import until
from fakes.request_causes import HTTP_PORT, endpoints, filtered, http_route, metadata, service, to
from gatehouse.cli.explain import explain
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(300)]

CLASSES = {"nginx": "gatehouse-nginx", "envoy": "gatehouse-envoy"}
CAUSES = {
    "refused": "connection_failure", "silent": "timeout", "limited": "rate_limit",
    "locked": "authentication",
}  # fmt: skip
"""Reason in the access log, by the name of the route."""


@pytest.fixture
async def silent_port() -> AsyncIterator[int]:
    """Return the port of a backend that never responds."""

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        port: int = server.sockets[0].getsockname()[1]
        yield port


def objects(gateway: str, silent_port: int) -> list[dict[str, Any]]:
    """Return a Gateway with a route for each cause, and one whose backend answers."""
    group, owner = "gateway.networking.k8s.io", {"group": "gateway.nginx.org"}
    listener = {"name": "http", "port": HTTP_PORT, "protocol": "HTTP"}
    users = {"auth": base64.b64encode(b"ann:{PLAIN}right\n").decode()}
    limit = {"rate": "1r/m", "key": "$binary_remote_addr", "zoneSize": "1m"}
    locked = {"type": "ExtensionRef", "extensionRef": {**owner, "kind": "AuthenticationFilter",
                                                       "name": "users"}}  # fmt: skip
    routes = [
        http_route("refused", to("closed")),
        http_route("silent", {**to("silent"), "timeouts": {"request": "200ms"}}),
        http_route("limited", to("app")),
        http_route("locked", filtered(to("app"), locked)),
        http_route("fine", to("app")),
    ]
    for item in routes:
        item["metadata"]["name"] = f"{gateway}-{item['metadata']['name']}"
        item["spec"]["parentRefs"] = [{"name": gateway}]
    return [
        {
            "apiVersion": request_causes.API, "kind": "Gateway", "metadata": metadata(gateway),
            "spec": {"gatewayClassName": CLASSES[gateway], "listeners": [listener]},
        },
        service("app"), endpoints("app", *BACKEND),
        service("closed"), endpoints("closed", "127.0.0.1", 1),
        service("silent"), endpoints("silent", "127.0.0.1", silent_port),
        {"apiVersion": "v1", "kind": "Secret", "type": "nginx.org/htpasswd",
         "metadata": metadata("users"), "data": users},
        {"apiVersion": "gateway.nginx.org/v1alpha1", "kind": "AuthenticationFilter",
         "metadata": metadata("users"),
         "spec": {"type": "Basic", "basic": {"secretRef": {"name": "users"}, "realm": "shop"}}},
        *routes,
        {"apiVersion": "gateway.nginx.org/v1alpha1", "kind": "RateLimitPolicy",
         "metadata": metadata(f"{gateway}-limit"),
         "spec": {"rateLimit": {"local": {"rules": [limit]}}, "targetRefs": [
             {"group": group, "kind": "HTTPRoute", "name": f"{gateway}-limited"}]}},
    ]  # fmt: skip


async def sent(installation: Installation, gateway: str, name: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the answer to a request with a wrong password."""
    words = [
        f"http://{name}.example:{HTTP_PORT}/", "--gateway", f"default/{gateway}", "--send",
        "-H", "Authorization: Basic YW5uOndyb25n", "-o", "json",
        "--kubeconfig", str(installation.kubeconfig),
    ]  # fmt: skip
    result = await asyncio.to_thread(CliRunner().invoke, explain, words)
    return result.exit_code, json.loads(result.stdout)["sent"]


@pytest.mark.parametrize("gateway", CLASSES)
async def test_answer_of_the_data_plane_has_its_reason(
    installation: Installation,
    client: kube.Client,
    backends: None,
    silent_port: int,
    gateway: str,
) -> None:
    await apply(client, objects(gateway, silent_port))
    await holds(client, "Gateway", gateway, "Programmed")

    async def served() -> bool:
        status, answer = await sent(installation, gateway, "fine")
        return status == 0 and answer["status"] == 200

    await until(served)
    for name, reason in CAUSES.items():

        async def logged(name: str = name, reason: str = reason) -> bool:
            # The first request of the limited route is within the limit.
            status, answer = await sent(installation, gateway, name)
            return status == 4 and answer.get("logged", {}).get("reason") == reason

        await until(logged)


TCP_PORT, SILENT_PORT, REFUSED_PORT, UDP_PORT, TLS_PORT, CALLS_PORT = (
    9431,
    9432,
    9433,
    9434,
    9435,
    9436,
)
BANNER = b"hello"


class _Echo(asyncio.DatagramProtocol):
    """Backend that returns each datagram."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self._transport.sendto(data, address)


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(BANNER)
    await reader.read()
    writer.close()


class _Calls(grpc.GenericRpcHandler):
    """Backend of gRPC that answers each call with an empty message."""

    def service(self, _details: Any) -> Any:
        async def answer(_message: bytes, _context: Any) -> bytes:
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
async def greeting_ports(tmp_path: Path) -> AsyncIterator[dict[str, int]]:
    """Return the ports of backends by the name of their Service."""
    loop = asyncio.get_running_loop()
    context = Authority(tmp_path).server("raw.example")
    calls = grpc.aio.server()
    calls.add_generic_rpc_handlers((_Calls(),))
    port = calls.add_insecure_port("127.0.0.1:0")
    await calls.start()
    transport, _ = await loop.create_datagram_endpoint(_Echo, ("127.0.0.1", 0))
    async with (
        await asyncio.start_server(_greet, "127.0.0.1", 0) as plain,
        await asyncio.start_server(_greet, "127.0.0.1", 0, ssl=context) as secure,
    ):
        yield {
            "plain": plain.sockets[0].getsockname()[1],
            "secure": secure.sockets[0].getsockname()[1],
            "datagrams": transport.get_extra_info("sockname")[1],
            "calls": port,
        }
    transport.close()
    await calls.stop(None)


def connection_objects(
    gateway: str, silent_port: int, ports: dict[str, int], certificate: dict[str, str]
) -> list[dict[str, Any]]:
    """Return a Gateway with an L4 route for each result, and a route for gRPC over TLS."""
    name = f"{gateway}-l4"
    listeners: list[dict[str, Any]] = [
        {"name": "plain", "port": TCP_PORT, "protocol": "TCP"},
        {"name": "silent", "port": SILENT_PORT, "protocol": "TCP"},
        {"name": "closed", "port": REFUSED_PORT, "protocol": "TCP"},
        {"name": "datagrams", "port": UDP_PORT, "protocol": "UDP"},
        {"name": "tls", "port": TLS_PORT, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
        {"name": "calls", "port": CALLS_PORT, "protocol": "HTTPS",
         "tls": {"certificateRefs": [{"name": "calls-tls"}]}},
    ]  # fmt: skip
    kinds = {"plain": "TCPRoute", "silent": "TCPRoute", "closed": "TCPRoute",
             "datagrams": "UDPRoute", "secure": "TLSRoute", "refused": "TLSRoute",
             "calls": "GRPCRoute"}  # fmt: skip
    sections = {"secure": "tls", "refused": "tls"}
    routes = []
    for backend, kind in kinds.items():
        rule = to("closed" if backend == "refused" else backend)
        item = http_route(backend, rule, kind=kind)
        item["metadata"]["name"] = f"{name}-{backend}"
        section = sections.get(backend, backend)
        item["spec"]["parentRefs"] = [{"name": name, "sectionName": section}]
        routes.append(item)
    places = {**ports, "silent": silent_port, "closed": 1}
    services = [
        item
        for backend, port in places.items()
        for item in (
            service(backend, protocol=protocol_of(backend)),
            endpoints(backend, "127.0.0.1", port, protocol=protocol_of(backend)),
        )
    ]
    return [
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
         "metadata": metadata("calls-tls"), "data": certificate},
        {"apiVersion": request_causes.API, "kind": "Gateway", "metadata": metadata(name),
         "spec": {"gatewayClassName": CLASSES[gateway], "listeners": listeners}},
        *services, *routes,
    ]  # fmt: skip


def protocol_of(backend: str) -> str:
    return "UDP" if backend == "datagrams" else "TCP"


CONNECTIONS: dict[tuple[str, ...], tuple[int, str, str]] = {
    (f"tcp://web.example:{TCP_PORT}",): (0, "5 bytes received, as expected", ""),
    (f"tcp://web.example:{SILENT_PORT}",): (
        0, "open without data for 2 s, as expected", "forwarded to endpoint 127.0.0.1:"),
    (f"tcp://web.example:{REFUSED_PORT}",): (
        4, "closed", "reason connection_failure, endpoint 127.0.0.1:1"),
    (f"udp://web.example:{UDP_PORT}", "--data", "ping"): (0, "4 bytes received, as expected", ""),
    (f"tls://secure.example:{TLS_PORT}",): (0, "5 bytes received, as expected", ""),
    (f"tls://refused.example:{TLS_PORT}",): (
        4, "no TLS connection", "reason connection_failure, endpoint 127.0.0.1:1"),
    (f"tls://nowhere.example:{TLS_PORT}",): (3, "as expected", ""),
    ("POST", f"https://calls.example:{CALLS_PORT}/shop.Api/Get"): (
        0, "gRPC status OK, as expected", ""),
    ("POST", f"https://nowhere.example:{CALLS_PORT}/shop.Api/Get"): (3, "404, as expected", ""),
    ("POST", f"https://nowhere.example:{CALLS_PORT}/shop.Api/Get",
     "-H", "content-type: application/grpc"): (
        3, "gRPC status UNIMPLEMENTED, as expected", ""),
}  # fmt: skip
"""Exit status, text of the result and of the access log, by arguments."""


@pytest.mark.parametrize("gateway", CLASSES)
async def test_connections_and_calls_over_tls_are_sent(
    installation: Installation,
    client: kube.Client,
    silent_port: int,
    greeting_ports: dict[str, int],
    tmp_path: Path,
    gateway: str,
) -> None:
    files = zip(("tls.crt", "tls.key"), Authority(tmp_path).issue("calls.example"), strict=True)
    certificate = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files}
    await apply(client, connection_objects(gateway, silent_port, greeting_ports, certificate))
    await holds(client, "Gateway", f"{gateway}-l4", "Programmed")
    last: dict[tuple[str, ...], str] = {}

    async def agrees(words: tuple[str, ...], status: int, text: str, logged: str) -> bool:
        options = ["--gateway", f"default/{gateway}-l4", "--send",
                   "--kubeconfig", str(installation.kubeconfig)]  # fmt: skip
        result = await asyncio.to_thread(CliRunner().invoke, explain, [*words, *options])
        last[words] = result.output
        return (result.exit_code, text in result.output, logged in result.output) == (
            status, True, True,
        )  # fmt: skip

    for words, expected in CONNECTIONS.items():
        try:
            await until(partial(agrees, words, *expected))
        except TimeoutError:
            raise AssertionError(last[words]) from None
