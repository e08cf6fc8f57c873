"""A pool of model servers, its endpoint picker, and the sidecar that asks the picker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import msgspec
from aiohttp import web
from envoy.service.ext_proc.v3 import external_processor_pb2 as protocol
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as service
from yarl import URL

from fakes.http2_models import Http2Models
from fakes.patience import SECONDS
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.picker import config
from gatehouse.sidecars.picker.config import Pool
from gatehouse.sidecars.picker.server import PoolServer

HOST = "127.0.0.1"

Answers = Callable[
    [AsyncIterator[protocol.ProcessingRequest]], AsyncIterator[protocol.ProcessingResponse]
]
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class ScriptedPicker(service.ExternalProcessorServicer):
    """A picker that answers as a function says."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        """Set when a call has begun, and ended."""

    async def Process(
        self,
        request_iterator: AsyncIterator[protocol.ProcessingRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[protocol.ProcessingResponse]:
        self.begun.set()
        try:
            async for answer in self.answers(request_iterator):
                yield answer
        finally:
            self.ended.set()


class ReceivedRequest(msgspec.Struct):
    """A request as a model server got it."""

    server: str
    method: str
    target: str
    fields: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.fields)


class Models:
    """Model servers that repeat the body of a request, unless ``handler`` answers."""

    def __init__(self) -> None:
        self.endpoints: dict[str, WeightedEndpoint] = {}
        self.requests: list[ReceivedRequest] = []
        self.handler: Handler | None = None

    async def _answer(self, name: str, request: web.BaseRequest) -> web.StreamResponse:
        if self.handler is not None:
            return await self.handler(request)
        fields = [(key.lower(), value) for key, value in request.headers.items()]
        body = await request.read()
        self.requests.append(ReceivedRequest(name, request.method, request.raw_path, fields, body))
        return web.Response(body=body, headers={"X-Model": name})

    @contextlib.asynccontextmanager
    async def serve(self, *names: str) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for name in names:

                async def answer(request: web.BaseRequest, name: str = name) -> web.StreamResponse:
                    return await self._answer(name, request)

                runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
                await runner.setup()
                stack.push_async_callback(runner.cleanup)
                await web.TCPSite(runner, HOST, 0).start()
                self.endpoints[name] = WeightedEndpoint(HOST, runner.addresses[0][1])
            yield


class ModelPool:
    """The pool, and requests as NGINX sends them."""

    def __init__(self, directory: Path, models: Models, *, http2: bool = False) -> None:
        self.directory, self.models, self._http2 = directory, models, http2
        self.pickers: tuple[WeightedEndpoint, ...] = ()
        self.messages: list[str] = []
        self.sockets = directory / "s"
        self.sockets.mkdir()
        self.server = PoolServer(self.sockets, 0.1, FailureLog(self.messages.append))

    async def configure(
        self, endpoints: tuple[WeightedEndpoint, ...] | None = None, **settings: Any
    ) -> None:
        """Serve the pool with these endpoints, or those of all model servers."""
        pool = Pool(
            socket="p.sock",
            cluster="c",
            endpoints="e.json",
            pickers="p.json",
            http2=self._http2,
            **settings,
        )
        path = self.directory / config.POOLS_FILE
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(config.encode_pools([pool]))
        own = tuple(self.models.endpoints.values()) if endpoints is None else endpoints
        for name, listed in (("e.json", own), ("p.json", self.pickers)):
            (self.directory / name).write_bytes(msgspec.json.encode(listed))
        await self.server.serve([self.directory])

    @contextlib.asynccontextmanager
    async def request(
        self, method: str = "POST", path: str = "/", **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        connector = aiohttp.UnixConnector(str(self.sockets / "p.sock"))
        timeout = aiohttp.ClientTimeout(SECONDS)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(method, URL(f"http://pool{path}", encoded=True), **more) as response,
        ):
            yield response

    async def ask(self, data: Any = b"{}", **more: Any) -> tuple[int, str, bytes]:
        """Return the status, the model server and the body of the response."""
        async with self.request(data=data, **more) as response:
            return response.status, response.headers.get("X-Model", ""), await response.read()

    def endpoint(self, name: str) -> str:
        return self.models.endpoints[name].encoded

    @contextlib.asynccontextmanager
    async def picker(
        self, servicer: service.ExternalProcessorServicer, pair: tuple[bytes, bytes] | None = None
    ) -> AsyncIterator[grpc.aio.Server]:
        """Serve a picker. ``pair``: key and certificate, None for HTTP/2 without TLS."""
        server = grpc.aio.server()
        service.add_ExternalProcessorServicer_to_server(servicer, server)
        if pair is None:
            port = server.add_insecure_port(f"{HOST}:0")
        else:
            port = server.add_secure_port(f"{HOST}:0", grpc.ssl_server_credentials([pair]))
        await server.start()
        self.pickers = (WeightedEndpoint(HOST, port),)
        try:
            yield server
        finally:
            await server.stop(0)


@contextlib.asynccontextmanager
async def model_pool(directory: Path, *names: str) -> AsyncIterator[ModelPool]:
    """Run model servers and the sidecar."""
    models = Models()
    async with models.serve(*names), pool_of(directory, models) as pool:
        yield pool


@contextlib.asynccontextmanager
async def pool_of(directory: Path, models: Models | Http2Models) -> AsyncIterator[ModelPool]:
    """Run the sidecar of model servers."""
    if isinstance(models, Http2Models):
        pool = ModelPool(directory, Models(), http2=True)
        pool.models.endpoints = models.endpoints
    else:
        pool = ModelPool(directory, models)
    try:
        yield pool
    finally:
        await pool.server.drain()
