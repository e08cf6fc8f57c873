"""Objects of a user on a real proxy: compiled without an API server, and served."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from differential import proxies
from differential.connections import Client, Seen
from differential.exchange import Request
from differential.proxies import Runner
from fakes import one_route
from fakes.loopback import loopback_network
from fakes.one_route import Object
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Engine, Key

RUNNERS = [
    pytest.param(proxies.with_nginx, id="nginx"),
    pytest.param(proxies.with_envoy, id="envoy"),
]

HOSTNAMES = [(), ("a.example",)]
"""Of a route for any hostname, and for an exact one, which Envoy handles in another way."""


def engine(
    rules: list[Object],
    endpoint: ir.Endpoint,
    *others: tuple[Key, Object],
    kind: str = "HTTPRoute",
    hostnames: Sequence[str] = (),
) -> Engine:
    """Return an engine with the route of ``rules``, whose Service ``s`` has an endpoint.

    ``hostnames``: those of the route.
    """
    result = one_route.engine(kind, rules, *others, port=proxies.PORT, hostnames=hostnames)
    labels = {"kubernetes.io/service-name": "s"}
    slice_object = {
        "metadata": {"name": "s-1", "namespace": "n", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "p", "port": endpoint.port}],
        "endpoints": [{"addresses": [endpoint.address]}],
    }
    key = ("EndpointSlice", "n", "s-1")
    result.commit({key: gateway_api.decode_gateway_api_object(key[0], slice_object)})
    return result


def gateway(engine: Engine, **settings: Any) -> ir_gateway.GatewayConfiguration:
    """Return the IR of the Gateway, on an address of its own. ``settings``: fields of the IR."""
    address = f"{loopback_network()}.1"
    with engine.compile() as ask:
        result = ask(gateway_api.compile_gateway, one_route.GATEWAY)
    assert result is not None
    return msgspec.structs.replace(result, bind_address=address, **settings)


@contextlib.asynccontextmanager
async def serving(
    runner: Runner, gateway: ir_gateway.GatewayConfiguration, directory: Path
) -> AsyncIterator[Client]:
    """Serve a gateway by a real proxy. Yield a client of it."""
    async with runner(gateway, directory):
        client = Client(gateway.bind_address)
        try:
            yield client
        finally:
            client.close()


async def get(
    client: Client, path: str = "/", headers: Sequence[tuple[str, str]] = (), **more: Any
) -> Seen:
    """Send a GET request for a host that every route serves."""
    return await client.send(Request("a.example", "GET", path, [*headers], **more))


def received(response: Seen, name: str) -> list[str]:
    """Return the values of a request header that the backend received, a line each."""
    assert response.status == 200, (response.status, response.body)
    return [value for key, value in response.backend["headers"] if key == name]
