"""Access log of gRPC calls: the same statuses and reasons on both proxies."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
import pytest

from fakes.durations import be_slow
from fakes.envoy_serving import host, plain, route_to
from fakes.logged_gateways import PROXIES, LoggedGateway, logged
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import Origin

pytestmark = pytest.mark.process

SERVICE = Origin("Service", "shop", "calls")


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class _Service(grpc.GenericRpcHandler):
    """Methods that succeed, fail at once, fail after a message, or never end."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_stream_rpc_method_handler(getattr(self, handler_call_details.method[-4:]))

    async def good(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request

    async def fail(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        if request:
            await context.abort(grpc.StatusCode.NOT_FOUND, "missing")
        yield request

    async def late(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        await context.abort(grpc.StatusCode.DATA_LOSS, "lost")

    async def hang(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        await be_slow(60)
        yield request


@contextlib.asynccontextmanager
async def service() -> AsyncIterator[ir.Endpoint]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Service(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield ir.Endpoint("127.0.0.1", port)
    finally:
        await server.stop(0)


def gateway(endpoint: ir.Endpoint) -> ir_gateway.GatewayConfiguration:
    routes = [
        route_to("c", "shop/calls/0/0", "/shop.Calls", grpc=True),
        route_to("closed", "shop/calls/1/0", "/shop.Closed", grpc=True),
        route_to("none", "shop/calls/2/0", "/shop.Empty", grpc=True),
        route_to("c", "shop/calls/3/0", "/shop.Slow", grpc=True, backend_timeout=0.5),
    ]
    clusters = [
        ir.Cluster("c", (endpoint,), "grpc", origin=SERVICE),
        ir.Cluster("closed", (ir.Endpoint("127.0.0.1", 9),), "grpc", origin=SERVICE),
        ir.Cluster("none", (), "grpc", origin=SERVICE),
    ]
    return plain([host("a.example", *routes)], clusters)


async def call(served: LoggedGateway, path: str) -> grpc.StatusCode:
    """Return the status that the client of a call gets."""
    options = [("grpc.default_authority", "a.example")]
    async with grpc.aio.insecure_channel(f"{served.address}:8080", options=options) as channel:
        try:
            method: Any = channel.unary_stream(path)
            async for _ in method(b"hello"):
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


CALLS = {
    "/shop.Calls/good": (0, "", "shop/calls/0"),
    "/shop.Calls/fail": (5, "", "shop/calls/0"),
    "/shop.Calls/late": (15, "", "shop/calls/0"),
    "/shop.Closed/good": (14, "connection_failure", "shop/calls/1"),
    "/shop.Empty/good": (14, "no_endpoint", "shop/calls/2"),
    "/shop.Slow/hang": (14, "timeout", "shop/calls/3"),
}
"""gRPC status, reason and route of calls."""


async def test_entry_of_grpc_call_has_both_statuses(proxy: str) -> None:
    async with service() as endpoint, logged(proxy, gateway(endpoint)) as served:
        for path, (status, reason, rule) in CALLS.items():
            assert (await call(served, path)).value[0] == status, path
            entry = await served.entry(path=path)
            assert (entry["status"], entry["grpc_status"]) == (200, status), path
            assert (entry["reason"] or "", entry["route"]) == (reason, rule), path
            assert entry["protocol"] == "HTTP/2"
            # Envoy repeats an attempt at the same endpoint, NGINX only at another one.
            repeated = proxy == "envoy" and reason == "connection_failure"
            assert entry["attempts"] == (0 if reason == "no_endpoint" else 3 if repeated else 1)
        assert await call(served, "/shop.Missing/good") is not grpc.StatusCode.OK
        entry = await served.entry(path="/shop.Missing/good")
    assert (entry["grpc_status"], entry["reason"], entry["attempts"]) == (12, "no_route", 0)


async def test_entry_of_request_that_is_no_grpc_call_has_no_grpc_status(proxy: str) -> None:
    async with service() as endpoint, logged(proxy, gateway(endpoint)) as served:
        url = f"http://{served.address}:8080/shop.Empty/good"
        headers = {"Host": "a.example", "Content-Type": "application/grpcx"}
        async with aiohttp.ClientSession() as session, session.post(url, headers=headers) as answer:
            assert answer.status == 503
        assert (await served.entry(path="/shop.Empty/good"))["grpc_status"] is None
