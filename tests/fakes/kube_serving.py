"""Kube-apiservers of the IR behind a real Envoy: authorities, a reviewer, and clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import web
from cryptography import x509

from fakes import envoys, kube_upstream, patience
from fakes.authority import Authority
from fakes.envoy_serving import Served
from fakes.loopback import loopback_network
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.origin import Origin

HOST = "a.kube.test"
PORT = 6443
EVERYTHING = ir.DispatchRule(verbs=ir.ANY, groups=ir.ANY, resources=ir.ANY, paths=ir.ANY)
ALL = ir.DispatchPolicy((EVERYTHING,))


class ProxyResponse(msgspec.Struct, frozen=True):
    """Response of the proxy."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body, if it is JSON."""
        return json.loads(self.body)

    def values(self, name: str) -> list[str]:
        """The values of a header that the server saw."""
        return [value for key, value in self.document["headers"] if key == name]


class Reviewer:
    """A reviewer with configurable responses that records its requests."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, str]] = {}
        """Headers of the answer by token."""
        self.allowed: Callable[[dict[str, str]], bool] = lambda _: False
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.broken = False
        self.unready: dict[str, bytes] = {}
        """Reasons by cluster, as the inside of a JSON string."""

    async def _answer(self, request: web.Request) -> web.Response:
        headers = {key.lower(): value for key, value in request.headers.items()}
        self.asked.append((request.path, headers))
        if self.broken:
            return web.Response(status=503, text="nobody answers")
        if request.path == "/unready":
            return web.Response(body=self.unready.get(headers["x-cluster"], b""))
        if request.path == "/token":
            token = headers["authorization"].removeprefix("Bearer ")
            if token not in self.users:
                return web.Response(status=401, headers={"x-keep": headers["x-bad-for"]})
            result = {"x-keep": headers["x-good-for"], **self.users[token]}
            return web.Response(headers=result)
        decoded = {key: unquote(value) for key, value in headers.items()}
        if self.allowed(decoded):
            return web.Response(headers={"x-keep": headers["x-good-for"]})
        return web.Response(status=403, text="not you", headers={"x-keep": headers["x-bad-for"]})

    @contextlib.asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.UnixSite(runner, str(path)).start()
        try:
            yield
        finally:
            await runner.cleanup()


class World:
    """A cluster of kube-apiservers, an Envoy in front of it, and everybody's certificates."""

    def __init__(
        self, directory: Path, served: Served, upstream: kube_upstream.Upstream, servers: Authority
    ) -> None:
        self.directory = directory
        self.served = served
        self.upstream = upstream
        self.reviewer = Reviewer()
        self.clients = Authority(directory, "clients")
        self.strangers = Authority(directory, "strangers")
        self.servers = servers
        self._connections: list[Connection] = []

    def server_certificate(self, *names: str) -> ir_gateway.Certificate:
        chain, key = self.servers.issue(names[0], *(x509.DNSName(name) for name in names))
        secret = ir_gateway.SecretBytes(key.read_bytes())
        return ir_gateway.Certificate(names[0], chain.read_bytes(), secret)

    def client(
        self, user: str = "", *groups: str, authority: Authority | None = None
    ) -> ssl.SSLContext:
        """Return the TLS context of a client, without a certificate if the user has no name."""
        context = ssl.create_default_context(cafile=str(self.servers.file))
        if user:
            context.load_cert_chain(*(authority or self.clients).issue_to(user, *groups))
        return context

    def cluster(self, *policies: ir.DispatchPolicy, **more: Any) -> ir.ApiCluster:
        server = ir.KubeApiServer("https://one", "127.0.0.1", self.upstream.port)
        values: dict[str, Any] = {
            "name": HOST, "hosts": (HOST,), "servers": (server,), "policies": policies or (ALL,),
            "client_trust": "clients", "origin": Origin("UpstreamCluster", "", HOST),
            "tls": ir.UpstreamTls("kube.test", trust="servers", certificate="gateway"),
            **more,
        }  # fmt: skip
        return ir.ApiCluster(**values)

    def gateway(self, *clusters: ir.ApiCluster, **more: Any) -> ir_gateway.GatewayConfiguration:
        names = sorted({name for cluster in clusters for name in cluster.hosts})
        chain, key = self.servers.issue("gateway")
        own = ir_gateway.Certificate(
            "gateway", chain.read_bytes(), ir_gateway.SecretBytes(key.read_bytes())
        )
        certificate = self.server_certificate("default.test", "unknown.test", *names)
        values: dict[str, Any] = {
            "api_listeners": (
                ir.ApiListener(
                    PORT, tuple(sorted(clusters, key=lambda c: c.name)), ("default.test",),
                    counter=more.pop("counter", ""),
                ),
            ),
            "certificates": (own, certificate),
            "trust_bundles": (
                ir_gateway.TrustBundle("clients", self.clients.pem),
                ir_gateway.TrustBundle("servers", self.servers.pem),
            ),
            **more,
        }  # fmt: skip
        return ir_gateway.GatewayConfiguration("ns/gw", **values)

    async def serve(self, *clusters: ir.ApiCluster, **more: Any) -> set[tuple[str, str]]:
        return await self.served.serve(self.gateway(*clusters, **more))

    async def connect(
        self, context: ssl.SSLContext, sni: str = HOST, port: int = PORT
    ) -> Connection:
        reader, writer = await asyncio.open_connection(
            self.served.address, port, ssl=context, server_hostname=sni
        )
        self._connections.append(connection := Connection(reader, writer))
        return connection

    def close(self) -> None:
        """Close all connections of clients."""
        for connection in self._connections:
            connection.close()

    async def ask(
        self, context: ssl.SSLContext, target: str = "/api/v1/pods", method: str = "GET",
        *headers: tuple[str, str], sni: str = HOST, host: str = HOST, body: bytes = b"",
    ) -> ProxyResponse:  # fmt: skip
        """Ask on a connection of its own."""
        connection = await self.connect(context, sni)
        try:
            return await connection.ask(target, method, *headers, host=host, body=body)
        finally:
            connection.close()

    def log(self) -> list[dict[str, Any]]:
        """The access log so far."""
        text = (self.directory / "access.log").read_text()
        return [json.loads(line) for line in text.split("\n") if line.startswith("{")]


class Connection:
    """HTTP/1.1, byte by byte: nothing is made nicer on the way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(
        self,
        target: str,
        method: str,
        *headers: tuple[str, str],
        host: str = HOST,
        body: bytes = b"",
    ) -> None:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
        lines += [f"{key}: {value}" for key, value in headers]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.strip().split("\r\n")
        pairs = (header.partition(":") for header in rest)
        return int(line.split()[1]), {k.lower(): v.strip() for k, _, v in pairs}

    async def chunk(self) -> bytes:
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return data

    async def ask(
        self, target: str, method: str = "GET", *headers: tuple[str, str], host: str = HOST,
        body: bytes = b"",
    ) -> ProxyResponse:  # fmt: skip
        async with patience.limit():
            self.send(target, method, *headers, host=host, body=body)
            status, result = await self.head()
            data = b""
            if method != "HEAD":
                if "content-length" in result:
                    data = await self.reader.readexactly(int(result["content-length"]))
                elif result.get("transfer-encoding") == "chunked":
                    while more := await self.chunk():
                        data += more
            return ProxyResponse(status, result, data)

    def close(self) -> None:
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def world(workers: int = 1, drain: int = 600) -> AsyncIterator[World]:
    """Run an Envoy, a kube-apiserver and a reviewer for a while; nothing is served yet.

    ``drain``: seconds after which Envoy closes connections of removed listeners.
    """
    address = f"{loopback_network()}.1"
    async with contextlib.AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="ghk-"))
        directory = Path(name)
        servers = Authority(directory, "servers")
        context = servers.server("kube", x509.DNSName("kube.test"))
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(servers.file)
        upstream = await stack.enter_async_context(kube_upstream.serving("one", context))
        running = await stack.enter_async_context(
            envoys.running(
                directory, workers=workers, output=directory / "access.log", drain=drain
            )
        )  # fmt: skip
        kube_world = World(directory, Served(running, address), upstream, servers)
        await stack.enter_async_context(kube_world.reviewer.serving(directory / "reviewer.sock"))
        yield kube_world
        kube_world.close()
