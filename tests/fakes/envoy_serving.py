"""Gateways of the IR served by a real Envoy, and backends that say what they saw."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from differential import echoes
from fakes import envoys, patience
from fakes.loopback import loopback_network
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir


class Served:
    """An Envoy that serves a gateway, which may change."""

    def __init__(
        self,
        running: envoys.Envoy,
        address: str,
        *,
        counts: bool = True,
        system_trust: Path | None = None,
    ) -> None:
        self.address = address
        self.running = running
        able = envoy.EnvoyCapabilities(
            runtime_limits=True, request_counts=counts, connection_counts=counts
        )
        if system_trust is not None:
            able = msgspec.structs.replace(able, system_trust=str(system_trust))
        self.generator = envoy.EnvoyGenerator(able)
        self.generated = envoy.GeneratedResources(running.ads.resources)

    async def serve(self, gateway: ir_gateway.GatewayConfiguration) -> set[tuple[str, str]]:
        """Serve this gateway. Return the keys of changed resources."""
        bound = msgspec.structs.replace(gateway, bind_address=self.address)
        before, self.generated = self.generated, self.generator.generate(bound)
        self.running.ads.publish(self.generated.resources)
        async with patience.limit():
            await self.running.ads.settled()
        assert not self.running.ads.refused, self.running.ads.refused
        return self.generated.resources.differing(before.resources)

    async def ask(
        self, host: str, path: str = "/", *, port: int = 8080, method: str = "GET", **more: Any
    ) -> tuple[int, dict[str, str], Any]:
        """Send a request. Return status, headers, and the backend's view of it (or the text)."""
        headers = {"Host": host, **more.pop("headers", {})}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                method, f"{more.pop('scheme', 'http')}://{self.address}:{port}{path}",
                headers=headers, allow_redirects=False, **more,
            ) as answer,
        ):  # fmt: skip
            body = await answer.read()
            echo = msgspec.json.decode(body) if body.startswith(b'{"service"') else body
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, echo

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait for a condition."""
        await patience.until(holds)


@contextlib.asynccontextmanager
async def serving(
    gateway: ir_gateway.GatewayConfiguration,
    *,
    drain: int = 600,
    output: Path | None = None,
    counts: bool = True,
    system_trust: Path | None = None,
) -> AsyncIterator[Served]:
    """Serve a gateway for a while, on an address of its own.

    ``counts``: whether an agent would count the requests. ``system_trust``: file with the CA
    certificates of the system, if a test needs it.
    """
    address = f"{loopback_network()}.1"
    with tempfile.TemporaryDirectory(prefix="ghe-") as directory:
        async with envoys.running(Path(directory), drain=drain, output=output) as running:
            served = Served(running, address, counts=counts, system_trust=system_trust)
            await served.serve(gateway)
            yield served


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[ir.Endpoint]:
    """Answer connections, and close all of them in the end."""
    writers: list[asyncio.StreamWriter] = []

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await answer(reader, writer)

    server = await asyncio.start_server(taken, "127.0.0.1", 0, limit=2**20)
    async with server:
        yield ir.Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def backend(name: str) -> AsyncIterator[ir.Endpoint]:
    """Run a backend that says what it saw."""
    async with listening(functools.partial(echoes.echo, name)) as endpoint:
        yield endpoint


def plain(
    hosts: Sequence[ir.VirtualHost], clusters: Sequence[ir.Cluster] = (), **more: Any
) -> ir_gateway.GatewayConfiguration:
    """Return a gateway with one HTTP port."""
    listener = ir_gateway.Listener(8080, "HTTP", tuple(sorted(hosts, key=lambda h: h.hostname)))
    return ir_gateway.GatewayConfiguration(
        "ns/gw", listeners=(listener,), clusters=tuple(clusters), **more
    )


def route_to(cluster: str, name: str = "ns/r/0/0", path: str = "/", **more: Any) -> ir.Route:
    """Return a route to a cluster. Other keyword arguments are fields of its action."""
    own = {key: more.pop(key) for key in (*more,) if key in ir.Route.__struct_fields__}
    action = ir.Forward((ir.Backend(cluster),), **more)
    return ir.Route(name, ir.Match(ir.PathPrefix(path)), action, **own)


def host(name: str, *routes: ir.Route, **more: Any) -> ir.VirtualHost:
    """Return a virtual host."""
    return ir.VirtualHost(name, routes, **more)
