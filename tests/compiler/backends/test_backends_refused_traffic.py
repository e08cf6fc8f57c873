"""Real proxies with routes without a backend, or with an unsupported filter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from differential import echoes, proxies
from differential.proxies import PORT, Runner
from fakes import patience
from fakes.loopback import loopback_network
from fakes.one_route import BACKEND, GATEWAY, Object, engine
from gatehouse.compiler.frontends import gateway_api

pytestmark = pytest.mark.process

RUNNERS = [
    pytest.param(proxies.with_nginx, id="nginx"),
    pytest.param(proxies.with_envoy, id="envoy"),
]
MISSING = {"name": "missing", "port": 80}


@contextlib.asynccontextmanager
async def served(
    runner: Runner, kind: str, rules: list[Object], endpoint: int, directory: Path
) -> AsyncIterator[str]:
    """Serve a route to the endpoint's port; yield the proxy's address."""
    address = f"{loopback_network()}.1"
    compiler = engine(kind, rules, port=PORT)
    labels = {"kubernetes.io/service-name": "s"}
    slice_ = {
        "metadata": {"name": "s-1", "namespace": "n", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "p", "port": endpoint, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["127.0.0.1"]}],
    }
    key = ("EndpointSlice", "n", "s-1")
    compiler.commit({key: gateway_api.decode_gateway_api_object("EndpointSlice", slice_)})
    with compiler.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    bound = msgspec.structs.replace(gateway, bind_address=address)
    async with runner(bound, directory):
        yield address


async def called(address: str, method: str = "/pkg.Service/Call") -> grpc.StatusCode:
    """Call a method; return the status that the client receives."""
    async with grpc.aio.insecure_channel(f"{address}:{PORT}") as channel:
        try:
            call: Any = channel.unary_unary(method)
            await call(b"hello", timeout=30)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def plain(address: str, request: bytes) -> bytes:
    """Send bytes; return the response until the proxy closes the connection."""
    reader, writer = await asyncio.open_connection(address, PORT)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), patience.SECONDS)
    writer.close()
    return answer


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    "references", [[], [MISSING], [BACKEND | {"weight": 0}], [MISSING, BACKEND | {"weight": 0}]]
)
async def test_grpc_call_without_usable_backend_is_unavailable(
    runner: Runner, references: list[Object], tmp_path: Path
) -> None:
    rules = [{"backendRefs": references}]
    async with served(runner, "GRPCRoute", rules, 1, tmp_path) as address:
        assert await called(address) is grpc.StatusCode.UNAVAILABLE
        assert await called(address, "/pkg.Service/Call.html") is grpc.StatusCode.UNAVAILABLE
        request = b"GET /a/b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        # A client without gRPC gets an HTTP status.
        assert (await plain(address, request)).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("runner", RUNNERS)
async def test_share_of_invalid_backend_is_unavailable(runner: Runner, tmp_path: Path) -> None:
    rules = [{"backendRefs": [MISSING, BACKEND]}]
    async with (
        echoes.calls("127.0.0.1") as port,
        served(runner, "GRPCRoute", rules, port, tmp_path) as address,
    ):
        statuses = [await called(address) for _ in range(40)]
    assert set(statuses) == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


@pytest.mark.parametrize("runner", RUNNERS)
async def test_grpc_error_response_is_trailers_only(runner: Runner, tmp_path: Path) -> None:
    rules = [{"backendRefs": [MISSING]}]
    async with served(runner, "GRPCRoute", rules, 1, tmp_path) as address:
        request = (
            b"POST /pkg.Service/Call HTTP/1.1\r\nHost: a\r\n"
            b"Content-Type: application/grpc+proto\r\n"
            b"Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
        head, _, body = (await plain(address, request)).lower().partition(b"\r\n\r\n")
    assert head.startswith(b"http/1.1 200 ")
    lines = head.split(b"\r\n")
    assert b"grpc-status: 14" in lines
    assert b"content-type: application/grpc" in lines
    assert body == b""


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    "edit",
    [
        {"set": [{"name": "Content-Length", "value": "0"}]},
        {"set": [{"name": "transfer-encoding", "value": "identity"}]},
        {"add": [{"name": "CONTENT-LENGTH", "value": "0"}]},
        {"remove": ["Content-Length"]},
    ],
)
async def test_request_body_is_never_parsed_as_request(
    runner: Runner, edit: Object, tmp_path: Path
) -> None:
    chunks: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            chunks.append(data)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    filters = [{"type": "RequestHeaderModifier", "requestHeaderModifier": edit}]
    rules = [{"filters": filters, "backendRefs": [BACKEND]}]
    body = b"GET /chosen-by-the-attacker HTTP/1.1\r\nHost: victim\r\nX-Swallow: "
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    async with server, served(runner, "HTTPRoute", rules, port, tmp_path) as address:
        reply = await plain(address, head % len(body) + body)
    assert reply.startswith(b"HTTP/1.1 500 ")
    assert chunks == []
