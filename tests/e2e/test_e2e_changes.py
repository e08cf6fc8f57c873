"""Nothing is dropped while it changes: steady load of every kind, with either proxy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp import web

from fakes.durations import be_slow, last, pace
from fakes.installation import HOST_NET, apply, holds
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import pki

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(400)]

SECONDS = float(os.environ.get("CHANGE_SECONDS", "20"))
BACKENDS = [(f"{HOST_NET}.{number}", 9080) for number in (240, 241)]
CALLS = (f"{HOST_NET}.242", 9090)
LASTS = 4.0
"""Seconds that a download, a WebSocket or a stream of calls lasts."""


async def _plain(request: web.Request) -> web.StreamResponse:
    await request.read()
    return web.Response(text="ok")


async def _slow(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(20):
        await response.write(b"x" * 10_000)
        await be_slow(LASTS / 20)
    return response


async def _socket(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data)
    return socket


async def _calls(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


@contextlib.asynccontextmanager
async def backends() -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for host, port in BACKENDS:
            application = web.Application()
            application.router.add_get("/slow", _slow)
            application.router.add_get("/ws", _socket)
            application.router.add_route("*", "/{path:.*}", _plain)
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, host, port).start()
        server = grpc.aio.server()
        handler: Any = grpc.stream_stream_rpc_method_handler(_calls)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("load.Echo", {"Talk": handler}),)
        )
        server.add_insecure_port(f"{CALLS[0]}:{CALLS[1]}")
        await server.start()
        stack.push_async_callback(server.stop, 0)
        yield


def certificate(ca: pki.KeyPair, directory: Path) -> dict[str, str]:
    pair = pki.KeyPair(directory / "c.crt", directory / "c.key")
    leaf = pki.InstallationCertificate("c", "load", dns=("load.test",), server=True)
    pki.issue(ca, leaf, pair, datetime.now(UTC))
    files = {"tls.crt": pair.cert, "tls.key": pair.key}
    return {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}


def meta(name: str, **labels: str) -> dict[str, Any]:
    return {"name": name, "namespace": "default", "labels": labels}


def listeners(more: bool) -> list[dict[str, Any]]:
    tls = {"certificateRefs": [{"name": "load"}]}
    result: list[dict[str, Any]] = [
        {"name": "http", "port": 8080, "protocol": "HTTP"},
        {"name": "https", "port": 8443, "protocol": "HTTPS", "tls": tls},
        {"name": "calls", "port": 8090, "protocol": "HTTP"},
    ]
    return [*result, {"name": "more", "port": 8081, "protocol": "HTTP"}] if more else result


def gateway(class_name: str, more: bool = False) -> dict[str, Any]:
    spec = {"gatewayClassName": class_name, "listeners": listeners(more)}
    return {"kind": "Gateway", "metadata": meta("load"), "spec": spec}


def endpoints(service: str, *addresses: tuple[str, int]) -> dict[str, Any]:
    return {
        "kind": "EndpointSlice",
        "metadata": meta(f"{service}-1", **{"kubernetes.io/service-name": service}),
        "addressType": "IPv4",
        "ports": [{"name": "p", "port": addresses[0][1]}],
        "endpoints": [{"addresses": [host]} for host, _ in addresses],
    }


def service(name: str, **port: str) -> dict[str, Any]:
    ports = [{"name": "p", "port": 80, **port}]
    return {"kind": "Service", "metadata": meta(name), "spec": {"ports": ports}}


def route(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    sections = ("calls",) if kind == "GRPCRoute" else ("http", "https")
    parents = [{"name": "load", "sectionName": section} for section in sections]
    whole = {"parentRefs": parents, **spec}
    return {"kind": kind, "metadata": meta(name), "spec": whole}


def objects(class_name: str, secret: dict[str, str]) -> list[dict[str, Any]]:
    calls = [{"backendRefs": [{"name": "calls", "port": 80}]}]
    return [
        {
            "kind": "Secret",
            "metadata": meta("load"),
            "type": "kubernetes.io/tls",
            "data": secret,
        },
        gateway(class_name),
        service("web"),
        endpoints("web", *BACKENDS),
        service("calls"),
        endpoints("calls", CALLS),
        route("HTTPRoute", "web", rules=[{"backendRefs": [{"name": "web", "port": 80}]}]),
        route("GRPCRoute", "calls", hostnames=["calls.test"], rules=calls),
    ]


class Load:
    """Requests of every kind, one after another in each task, until it is stopped."""

    def __init__(self, address: str, trust: ssl.SSLContext) -> None:
        self._address, self._trust = address, trust
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []
        self._stop = asyncio.Event()

    async def run(self, seconds: float) -> None:
        kinds = (
            self.keepalive,
            self.fresh,
            self.posts,
            self.tls,
            self.long,
            self.socket,
            self.talk,
        )
        tasks = [asyncio.create_task(self._repeat(kind)) for kind in kinds for _ in range(2)]
        await last(seconds)
        self._stop.set()
        await asyncio.gather(*tasks)

    async def _repeat(self, kind: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> None:
        name = kind.__name__
        connector = aiohttp.TCPConnector(force_close=name in ("fresh", "tls"), ssl=self._trust)
        async with aiohttp.ClientSession(connector=connector) as session:
            while not self._stop.is_set():
                started = time.strftime("%X")
                try:
                    await kind(session)
                    self.done[name] += 1
                except Exception as error:
                    self.failed.append(f"{started} {name}: {error!r}")
                await pace(0.02)

    async def _get(self, session: aiohttp.ClientSession, url: str, **more: Any) -> bytes:
        async with session.get(url, **more) as response:
            assert response.status == 200, response.status
            return await response.read()

    async def keepalive(self, session: aiohttp.ClientSession) -> None:
        await self._get(session, f"http://{self._address}:8080/")

    async def fresh(self, session: aiohttp.ClientSession) -> None:
        await self._get(session, f"http://{self._address}:8080/")

    async def posts(self, session: aiohttp.ClientSession) -> None:
        url = f"http://{self._address}:8080/"
        async with session.post(url, data=b"x" * 50_000) as response:
            assert response.status == 200, response.status

    async def tls(self, session: aiohttp.ClientSession) -> None:
        await self._get(session, f"https://{self._address}:8443/", server_hostname="load.test",
                        headers={"Host": "load.test"})  # fmt: skip

    async def long(self, session: aiohttp.ClientSession) -> None:
        data = await self._get(session, f"http://{self._address}:8080/slow")
        assert len(data) == 200_000, len(data)

    async def socket(self, session: aiohttp.ClientSession) -> None:
        async with session.ws_connect(f"http://{self._address}:8080/ws") as socket:
            for number in range(8):
                await socket.send_str(str(number))
                assert (await socket.receive_str()) == str(number)
                await be_slow(LASTS / 8)

    async def talk(self, _: aiohttp.ClientSession) -> None:
        options = [("grpc.default_authority", "calls.test")]
        target = f"{self._address}:8090"
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            stream: Any = channel.stream_stream("/load.Echo/Talk")()
            for number in range(8):
                await stream.write(b"%d" % number)
                assert await stream.read() == b"%d" % number
                await be_slow(LASTS / 8)
            await stream.done_writing()


async def changes(
    client: kube.Client, class_name: str, ca: pki.KeyPair, seconds: float, every: float
) -> int:
    """Change something again and again: a route, endpoints, the certificate, a listener."""
    begun, number = time.monotonic(), 0
    extra = [
        {"matches": [{"path": {"value": "/other"}}], "backendRefs": [{"name": "web", "port": 80}]}
    ]
    while time.monotonic() - begun < seconds:
        match number % 5:
            case 0:
                await apply(client, [route("HTTPRoute", f"extra-{number}", rules=extra)])
            case 1:
                await apply(client, [endpoints("web", BACKENDS[number // 5 % 2])])
            case 2:
                with tempfile.TemporaryDirectory() as directory:
                    data = certificate(ca, Path(directory))
                await apply(client, [{"kind": "Secret", "metadata": meta("load"), "data": data}])
            case 3:
                await apply(client, [gateway(class_name, more=number // 5 % 2 == 0)])
            case _:
                await client.delete(resources.HTTP_ROUTES, f"extra-{number - 4}", "default")
                await apply(client, [endpoints("web", *BACKENDS)])
        number += 1
        await asyncio.sleep(max(0.0, begun + number * every - time.monotonic()))
    return number


@pytest.mark.parametrize(
    ("class_name", "every"), [("gatehouse-nginx", 1.0), ("gatehouse-envoy", 0.2)]
)
async def test_no_request_fails_while_objects_change(
    client: kube.Client, tmp_path: Path, class_name: str, every: float
) -> None:
    authority = pki.Pki(tmp_path / "pki")
    authority.ensure()
    ca = authority.ca()
    trust = ssl.create_default_context(cafile=str(ca.cert))
    async with backends():
        await apply(client, objects(class_name, certificate(ca, tmp_path)))
        condition = await holds(client, "Gateway", "load", "Programmed")
        await holds(client, "HTTPRoute", "web", "Accepted")
        await holds(client, "GRPCRoute", "calls", "Accepted")
        load = Load(str(condition["addresses"][0]["value"]), trust)
        running = asyncio.create_task(load.run(SECONDS))
        number = await changes(client, class_name, ca, SECONDS, every)
        await running
    print(f"{number} changes; {dict(load.done)}")
    assert not load.failed, f"{len(load.failed)} failed: {load.failed[:10]}; {dict(load.done)}"
    assert all(load.done[kind] > 2 for kind in ("long", "socket", "talk")), load.done
    assert load.done["keepalive"] > SECONDS * 10
