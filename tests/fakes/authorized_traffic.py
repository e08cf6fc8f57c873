"""Routes with an ExternalAuth filter, served by real proxies."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yarl

from differential import echoes, proxies
from differential.proxies import PORT, Runner
from fakes import authorization_servers, patience
from fakes.authorization_servers import AuthorizationServer
from fakes.envoy_serving import Answer, listening
from fakes.loopback import loopback_network
from fakes.one_route import BACKEND, GATEWAY, ROUTE, Object, engine
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.incremental.query import Key

NGINX = functools.partial(proxies.with_nginx, modules=("http_auth_request_module",))
RUNNERS = [
    pytest.param(NGINX, id="nginx"),
    pytest.param(proxies.with_envoy, id="envoy"),
]
HTTP = {"path": "/check", "allowedHeaders": ["X-Token", "X-Real-IP"],
        "allowedResponseHeaders": ["X-User"]}  # fmt: skip

COPY = {"name": "copy", "port": 80}
OPEN = {"matches": [{"path": {"type": "PathPrefix", "value": "/open"}}], "backendRefs": [BACKEND]}


def check(**external: Any) -> Object:
    """Return an ExternalAuth filter."""
    auth = {"backendRef": {"name": "auth", "port": 80}, "protocol": "HTTP", "http": HTTP}
    return {"type": "ExternalAuth", "externalAuth": auth | external}


def rule(path: str = "/", *filters: Object, **external: Any) -> Object:
    """Return a rule with an ExternalAuth filter."""
    return {
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "filters": [check(**external), *filters],
        "backendRefs": [BACKEND],
    }


class Served:
    """A proxy in front of a backend."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def send(
        self, target: str, method: str = "GET", data: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """Send a request. Return status, headers, and what the backend received (or the text)."""
        url = yarl.URL(f"http://{self.address}:{PORT}{target}", encoded=True)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, url, headers={"Host": "a.example", **sent}, data=data, allow_redirects=False
            ) as answer,
        ):
            body = await answer.read()
            echo = msgspec.json.decode(body) if body.startswith(b'{"service"') else body
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, echo

    async def upgrade(self, target: str) -> tuple[bytes, bytes]:
        """Ask for a WebSocket. Return the head of the response, and what comes back for `ping`."""
        reader, writer = await asyncio.open_connection(self.address, PORT)
        head = f"GET {target} HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n"
        writer.write(f"{head}Upgrade: websocket\r\n\r\n".encode())
        async with patience.limit():
            response, echo = await reader.readuntil(b"\r\n\r\n"), b""
            if b" 101 " in response:
                writer.write(b"ping")
                echo = await reader.readexactly(4)
        writer.close()
        return response, echo


def values(echo: Any, name: str) -> list[str]:
    """Return the values of a header that the backend received."""
    return [value for header, value in echo["headers"] if header == name]


def _slice(service: str, port: int) -> tuple[tuple[str, str, str], Object]:
    labels = {"kubernetes.io/service-name": service}
    return ("EndpointSlice", "n", f"{service}-1"), {
        "metadata": {"name": f"{service}-1", "namespace": "n", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "p", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["127.0.0.1"]}],
    }


def recording(heads: list[bytes]) -> Answer:
    """Return a server that records the head of a request."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    return answer


@pytest.fixture
async def auth() -> AsyncIterator[AuthorizationServer]:
    """Yield an authorization server."""
    async with authorization_servers.http_server() as server:
        yield server


@contextlib.asynccontextmanager
async def served(
    runner: Runner,
    directory: Path,
    auth: int,
    *rules: Object,
    mirrored: int = 0,
    listener: tuple[Object, ...] = (),
    controller: str = gateway_api.NGINX,
    hostnames: tuple[str, ...] = (),
    answer: Answer = functools.partial(echoes.echo, "s"),  # noqa: B008
    change: Callable[[GatewayConfiguration], GatewayConfiguration] = lambda gateway: gateway,
) -> AsyncIterator[Served]:
    """Serve rules to a backend.

    ``auth``: the port of the authorization server, 0 without one. ``mirrored``: that of copies.
    ``listener``: its filters. ``controller``: that of the class. ``hostnames``: those of the route.
    ``answer``: the backend. ``change``: a change of the configuration.
    """
    async with listening(answer) as backend:
        ports = [{"name": "p", "port": 80, "protocol": "TCP"}]
        services = [(("Service", "n", name), {"ports": ports}) for name in ("auth", "copy")]
        route = {"parentRefs": [{"name": "gw"}], "hostnames": [*hostnames], "rules": [*rules]}
        listeners = [
            {"name": "l", "port": PORT, "protocol": "HTTP", "filters": {"requests": [*listener]}}
        ]
        gateway_spec = {"gatewayClassName": "c", "listeners": listeners}
        objects: list[tuple[Key, Object]] = [
            *services,
            (("GatewayClass", "", "c"), {"controllerName": controller}),
            (GATEWAY, gateway_spec),
            (ROUTE["HTTPRoute"], route),
        ]
        compiled = engine("HTTPRoute", [], *objects, port=PORT)
        endpoints = {"s": backend.port, "auth": auth, "copy": mirrored}
        for key, raw in (_slice(name, number) for name, number in endpoints.items() if number):
            compiled.commit({key: gateway_api.decode_gateway_api_object("EndpointSlice", raw)})
        with compiled.compile() as ask:
            gateway = ask(gateway_api.compile_gateway, GATEWAY)
        assert gateway is not None
        address = f"{loopback_network()}.1"
        bound = msgspec.structs.replace(gateway, bind_address=address)
        async with runner(change(bound), directory):
            yield Served(address)
