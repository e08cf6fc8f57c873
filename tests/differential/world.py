"""The real thing: objects compiled by Gatehouse, served by NGINX, before backends that echo."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from oracle import Request
from population import SERVICES

from gatehouse.agent import nginx_binary
from gatehouse.backends import nginx
from gatehouse.bundle import Bundle
from gatehouse.frontends import gateway_api
from gatehouse.query import Engine, Key, Snapshot

Object = dict[str, Any]

PORT = 8080
STARTS = 90.0
"""Seconds that NGINX may take to read its configuration."""


class Seen:
    """A response, and what its backend saw (empty if none was asked)."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body
        self.backend: Object = json.loads(body) if body.startswith(b'{"service"') else {}


Addresses = dict[str, list[tuple[str, int]]]


def compiled(routes: list[Object], addresses: Addresses, bind: str) -> Bundle:
    """Compile a Gateway with all routes; raises AssertionError if anything cannot be served."""
    engine = Engine(Snapshot(gateway_api.INDEXES))
    meta = {"namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    listener = {"name": "http", "port": PORT, "protocol": "HTTP"}
    objects: list[tuple[str, Object]] = [
        ("GatewayClass", {"metadata": {"name": "c"}, "spec": {"controllerName": "x"}}),
        (
            "Gateway",
            {
                "metadata": {**meta, "name": "gw"},
                "spec": {"gatewayClassName": "c", "listeners": [listener]},
            },
        ),
        *(("HTTPRoute", route) for route in routes),
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
    changes: dict[Key, Any] = {
        gateway_api.SETTINGS_KEY: gateway_api.Settings(controller_name="x", bind="any")
    }
    for kind, raw in objects:
        key = (kind, raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
        changes[key] = gateway_api.decode(kind, raw)
    engine.commit(changes)
    with engine.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, ("Gateway", "ns", "gw"))
    assert gateway is not None
    gateway = msgspec.structs.replace(gateway, bind_address=bind)
    generated = nginx.Generator(nginx.Capabilities.parse("1.31.3")).generate(gateway)
    assert not generated.unsupported, generated.unsupported
    return generated.bundle


class World:
    """Backends and one NGINX on a loopback address of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.address = f"127.{random.randint(20, 250)}.{random.randint(0, 255)}.1"
        self.addresses: Addresses = {}

    @contextlib.asynccontextmanager
    async def serving(self, routes: list[Object]) -> AsyncIterator[None]:
        """Serve the routes for a while."""
        servers = []
        for name, count in SERVICES.items():
            self.addresses[name] = []
            for _ in range(count):
                answer = functools.partial(_backend, name)
                server = await asyncio.start_server(answer, self.address, 0, limit=2**20)
                servers.append(server)
                self.addresses[name].append((self.address, server.sockets[0].getsockname()[1]))
        process = await self._start(compiled(routes, self.addresses, self.address))
        try:
            yield
        finally:
            if process.returncode is not None:
                said = (self._directory / "error.log").read_text()[-2000:]
                raise RuntimeError(f"NGINX has ended, {process.returncode}: {said}")
            process.send_signal(signal.SIGTERM)
            await process.wait()
            for server in servers:
                server.close()

    async def _start(self, bundle: Bundle) -> asyncio.subprocess.Process:
        base = self._directory
        for path, file in bundle.files.items():
            (base / path).parent.mkdir(parents=True, exist_ok=True)
            (base / path).write_bytes(file.content)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temp = " ".join(f"{kind}_temp_path {base}/{kind};" for kind in kinds)
        user = "user root;" if os.geteuid() == 0 else ""
        (base / "nginx.conf").write_text(
            f"{user} daemon off; pid {base}/pid; error_log {base}/error.log warn; "
            f"events {{ worker_connections 1024; }} "
            f"http {{ {temp} access_log off; include gatehouse/http.conf; }}"
        )
        binary = str(nginx_binary.find(None))
        process = await asyncio.create_subprocess_exec(
            binary, "-p", str(base), "-c", str(base / "nginx.conf"), "-e", f"{base}/error.log"
        )
        # Thousands of maps take NGINX long to read on a machine that does something else beside.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTS):
                while process.returncode is None:
                    with contextlib.suppress(OSError):
                        _, writer = await asyncio.open_connection(self.address, PORT)
                        writer.close()
                        return process
                    await asyncio.sleep(0.05)
        if process.returncode is None:
            process.kill()
        said = (base / "error.log").read_text()[-2000:]
        raise RuntimeError(f"NGINX does not listen, {await process.wait()}: {said}")

    def connection(self) -> Connection:
        """Give a connection of a client, kept alive."""
        return Connection(self.address)


class Connection:
    """Sends requests byte for byte, one after another."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: Request) -> Seen:
        """Send a request and read the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address, PORT, limit=2**20)
        reader, writer = self._streams
        lines = [f"{request.method} {request.target} HTTP/1.1", f"Host: {request.host}"]
        lines += [f"{name}: {value}" for name, value in request.headers]
        writer.write(("\r\n".join([*lines, "Content-Length: 0", "", ""])).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode(errors="surrogateescape")
        first, *rest = head.split("\r\n")[:-2]
        headers = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in rest)]
        length = int(dict(headers).get("content-length", 0))
        body = await reader.readexactly(length)
        if dict(headers).get("connection") == "close":
            self.close()
        return Seen(int(first.split()[1]), headers, body)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _backend(name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with what was seen, and with a header that edits may touch."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode(errors="surrogateescape")
            first, *rest = head.split("\r\n")[:-2]
            headers = [[n.lower(), v.strip()] for n, _, v in (x.partition(":") for x in rest)]
            await reader.readexactly(int(dict(headers).get("content-length", "0")))
            method, target = first.split(" ")[:2]
            body = json.dumps(
                {"service": name, "method": method, "target": target, "headers": headers}
            ).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-gone: backend\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body
            )
            await writer.drain()
    writer.close()
