"""The system under test: compiled objects, served by a proxy, before backends that echo."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from differential import echoes
from differential.connections import Client
from differential.exchange import Object
from differential.population import LISTENERS, SERVICES
from differential.proxies import PORT, Runner
from fakes.loopback import loopback_network
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.incremental.query import Engine, Key, Snapshot
from gatehouse.standalone import pki

Addresses = dict[str, list[tuple[str, int]]]


def compiled(
    routes: list[Object], addresses: Addresses, bind: str, directory: Path
) -> GatewayConfiguration:
    """Compile a Gateway with all routes."""
    engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
    meta = {"namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    listeners = [
        _listener(port, name, number)
        for port, names in LISTENERS.items()
        for number, name in enumerate(names)
    ]
    objects: list[tuple[str, Object]] = [
        (
            "GatewayClass",
            {"metadata": {"name": "c"}, "spec": {"controllerName": gateway_api.NGINX}},
        ),
        (
            "Gateway",
            {
                "metadata": {**meta, "name": "gw"},
                "spec": {"gatewayClassName": "c", "listeners": listeners},
            },
        ),
        ("Secret", _secret(meta, directory)),
        *((route["kind"], route) for route in routes),
    ]
    for name, endpoints in addresses.items():
        ports = [{"name": "http", "port": 80}]
        objects.append(("Service", {"metadata": {**meta, "name": name}, "spec": {"ports": ports}}))
        for number, (address, port) in enumerate(endpoints):
            labels = {"kubernetes.io/service-name": name}
            slice_ = {
                "metadata": {**meta, "name": f"{name}-{number}", "labels": labels},
                "ports": [{"name": "http", "port": port}],
                "endpoints": [{"addresses": [address]}],
            }
            objects.append(("EndpointSlice", slice_))
    changes: dict[Key, Any] = {gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")}
    for kind, raw in objects:
        key = (kind, raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
        changes[key] = gateway_api.decode_gateway_api_object(kind, raw)
    engine.commit(changes)
    with engine.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, ("Gateway", "ns", "gw"))
    assert gateway is not None
    return msgspec.structs.replace(gateway, bind_address=bind)


def _listener(port: int, hostname: str, number: int) -> Object:
    result: Object = {"name": f"l{port}-{number}", "port": port, "protocol": "HTTP"}
    if hostname:
        result["hostname"] = hostname
    if port != PORT:
        result |= {"protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "tls"}]}}
    return result


def _secret(meta: Object, directory: Path) -> Object:
    authority = pki.Pki(directory / "pki")
    authority.ensure()
    pair = pki.KeyPair(directory / "leaf.crt", directory / "leaf.key")
    leaf = pki.InstallationCertificate("tls", "tls", dns=("*.w.test",), server=True)
    pki.issue(authority.ca(), leaf, pair, datetime.now(UTC))
    files = {"tls.crt": pair.cert, "tls.key": pair.key}
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    return {"metadata": {**meta, "name": "tls"}, "type": "kubernetes.io/tls", "data": data}


class World:
    """Backends and one proxy on a loopback address of their own."""

    def __init__(self, directory: Path, runner: Runner) -> None:
        self._directory = directory
        self._runner = runner
        self.address = f"{loopback_network()}.1"
        self.addresses: Addresses = {}

    @contextlib.asynccontextmanager
    async def serving(self, routes: list[Object]) -> AsyncIterator[None]:
        """Serve the routes."""
        async with contextlib.AsyncExitStack() as stack:
            for name, count in SERVICES.items():
                self.addresses[name] = []
                for _ in range(count):
                    port = await stack.enter_async_context(_served(name, self.address))
                    self.addresses[name].append((self.address, port))
            gateway = compiled(routes, self.addresses, self.address, self._directory)
            await stack.enter_async_context(self._runner(gateway, self._directory))
            yield

    def client(self) -> Client:
        """Return a client."""
        return Client(self.address)


@contextlib.asynccontextmanager
async def _served(name: str, address: str) -> AsyncIterator[int]:
    """Run one endpoint of a Service; yield its port."""
    if name == "calls":
        async with echoes.calls(address) as port:
            yield port
        return
    answer = functools.partial(echoes.echo, name)
    server = await asyncio.start_server(answer, address, 0, limit=2**20)
    yield server.sockets[0].getsockname()[1]
    server.close()
