"""Metrics of requests: the same requests give the same series on both proxies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes import patience
from fakes.durations import be_slow
from fakes.envoy_serving import backend, host, listening, plain, route_to
from fakes.logged_gateways import PROXIES, LoggedGateway, logged
from fakes.logged_requests import CLOSED, SERVICE, gateway
from gatehouse.agent.request_metrics import RouteMetrics
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import AccessLog, NginxLogFormat
from gatehouse.compiler.ir.settings import DataPlaneSettings

pytestmark = pytest.mark.process

Series = dict[tuple[str, ...], float]
"""Values by the name of the metric without its prefix, and the labels except ``gateway``."""


def series(requests: RouteMetrics) -> Series:
    """Return the values of all samples except buckets."""
    return {
        (sample.name.removeprefix("gatehouse_"), *_own(sample.labels)): sample.value
        for family in text_string_to_metric_families(requests.text())
        for sample in family.samples
        if "le" not in sample.labels
    }


def _own(labels: Mapping[str, str]) -> list[str]:
    assert labels["gateway"] == "gw"
    return [f"{name}={value}" for name, value in sorted(labels.items()) if name != "gateway"]


async def counted(served: LoggedGateway, number: int) -> Series:
    """Wait until as many requests are counted. Return the series."""
    values: Series = {}
    async with patience.limit():
        while _total(values) < number:
            await patience.pause()
            values = series(served.requests)
    assert _total(values) == number
    assert not served.requests.samples()[0].value
    return values


def _total(values: Series) -> float:
    return sum(value for key, value in values.items() if key[0] == "route_requests_total")


def of(values: Series, name: str) -> Series:
    """Return the series of one metric, without its name."""
    return {key[1:]: value for key, value in values.items() if key[0] == name}


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def _send(
    served: LoggedGateway, path: str, host_: str = "a.example", **more: Any
) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            more.pop("method", "GET"), f"http://{served.address}:8080{path}",
            headers={"Host": host_}, allow_redirects=False, **more,
        ) as answer,
    ):  # fmt: skip
        return answer.status, await answer.read()


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


REQUESTS = {
    ("route=shop/web/0", "POST", "2xx"): 2, ("route=shop/web/0", "DELETE", "2xx"): 1,
    ("route=", "GET", "4xx"): 2, ("route=shop/web/1", "GET", "5xx"): 1,
    ("route=shop/web/3", "GET", "5xx"): 1, ("route=shop/web/4", "GET", "2xx"): 1,
    ("route=shop/web/4", "GET", "5xx"): 1, ("route=shop/web/5", "GET", "4xx"): 1,
    ("route=shop/web/7", "GET", "5xx"): 1, ("route=shop/web/8", "GET", "3xx"): 1,
}  # fmt: skip
"""Number of requests by route, method and status class."""

BACKENDS = {
    ("backend=Service/shop/web", "reason=", "status_class=2xx"): 4,
    ("backend=Service/shop/web", "reason=no_endpoint", "status_class=5xx"): 1,
    ("backend=Service/shop/web", "reason=connection_failure", "status_class=5xx"): 1,
}
"""Requests without an endpoint count for the backend. Rejected ones do not."""


async def test_same_requests_give_the_same_series(proxy: str) -> None:
    async with (
        backend("one") as endpoint,
        listening(_hang_up) as broken,
        logged(proxy, gateway(endpoint, broken)) as served,
    ):
        size = 0
        for method in ("POST", "POST", "DELETE"):
            _, body = await _send(served, "/ok", method=method, data=b"x" * 1000)
            size += len(body)
        paths = ("/missing", "/empty", "/broken", "/limited", "/limited", "/users", "/invalid")
        for path in (*paths, "/away"):
            await _send(served, path)
        await _send(served, "/ok", "b.example")
        values = await counted(served, sum(REQUESTS.values()))
    assert of(values, "route_requests_total") == {
        (f"method={method}", route, f"status_class={status}"): number
        for (route, method, status), number in REQUESTS.items()
    }
    assert of(values, "backend_requests_total") == BACKENDS
    routes = {route for route, _, _ in REQUESTS}
    durations = {
        (route,): sum(n for (own, _, _), n in REQUESTS.items() if own == route) for route in routes
    }
    assert of(values, "route_request_duration_seconds_count") == durations
    assert of(values, "route_upstream_duration_seconds_count") == {
        (route,): {"route=shop/web/0": 3, "route=shop/web/4": 1}.get(route, 0) for route in routes
    }
    sums = of(values, "route_request_duration_seconds_sum")
    assert 0 <= sums["route=shop/web/0",] < 30
    total = of(values, "route_bytes_total")["direction=sent", "route=shop/web/0"]
    assert size < total < size + 1500
    assert 3000 < of(values, "route_bytes_total")["direction=received", "route=shop/web/0"] < 4500


async def test_metrics_do_not_depend_on_the_access_log(proxy: str) -> None:
    route = ir.Route("shop/web/0/0", ir.Match(ir.PathPrefix("/")), ir.Respond(204))
    own = AccessLog(nginx=NginxLogFormat("$uri"))
    for access_log in (None, AccessLog((5,)), AccessLog(percent=1), own):
        if proxy == "envoy" and access_log is own:
            continue
        settings = DataPlaneSettings(access_log=access_log)
        world = plain([host("a.example", route)], settings=settings)
        async with logged(proxy, world) as served:
            for _ in range(5):
                await _send(served, "/")
            values = await counted(served, 5)
        assert of(values, "route_requests_total") == {
            ("method=GET", "route=shop/web/0", "status_class=2xx"): 5
        }


async def test_retries_and_unreachable_endpoints_are_counted(proxy: str) -> None:
    retried = route_to("closed", "shop/web/0/0", retry=ir.Retry(2))
    cluster = ir.Cluster("closed", (CLOSED,), origin=SERVICE)
    async with logged(proxy, plain([host("a.example", retried)], [cluster])) as served:
        await _send(served, "/x")
        values = await counted(served, 1)
    assert of(values, "route_retries_total") == {("route=shop/web/0",): 2}
    assert of(values, "route_upstream_duration_seconds_count") == {("route=shop/web/0",): 0}
    assert of(values, "backend_requests_total") == {
        ("backend=Service/shop/web", "reason=connection_failure", "status_class=5xx"): 1
    }


async def _slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await be_slow(0.6)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
    await writer.drain()
    await be_slow(0.6)
    writer.write(b"done")


async def test_durations_are_those_of_the_response(proxy: str) -> None:
    async with listening(_slow) as endpoint:
        cluster = ir.Cluster("c", (endpoint,), origin=SERVICE)
        world = plain([host("a.example", route_to("c", "shop/web/0/0"))], [cluster])
        async with logged(proxy, world) as served:
            assert (await _send(served, "/"))[1] == b"done"
            values = await counted(served, 1)
            text = served.requests.text()
    route = ("route=shop/web/0",)
    # The upper bounds only tell seconds from milliseconds.
    assert 1.1 < of(values, "route_request_duration_seconds_sum")[route] < 60
    assert 0.5 < of(values, "route_upstream_duration_seconds_sum")[route] < 60
    assert (
        of(values, "route_upstream_duration_seconds_sum")[route] + 0.5
        < of(values, "route_request_duration_seconds_sum")[route]
    )
    name = "gatehouse_route_request_duration_seconds_bucket"
    assert f'{name}{{le="1",route="shop/web/0",gateway="gw"}} 0' in text
    assert f'{name}{{le="+Inf",route="shop/web/0",gateway="gw"}} 1' in text


@contextlib.asynccontextmanager
async def _grpc_backend() -> AsyncIterator[ir.Endpoint]:
    async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        if request == b"fail":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
        return request

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("shop.Web", {"Get": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield ir.Endpoint("127.0.0.1", port)
    await server.stop(None)


async def test_grpc_calls_are_counted_by_their_http_status(proxy: str) -> None:
    async with _grpc_backend() as endpoint:
        cluster = ir.Cluster("c", (endpoint,), "grpc", origin=SERVICE)
        action = ir.Forward((ir.Backend("c"),), grpc=True)
        route = ir.Route("shop/calls/0/0", ir.Match(ir.PathPrefix("/")), action)
        async with logged(proxy, plain([host("a.example", route)], [cluster])) as served:
            options = [("grpc.default_authority", "a.example")]
            async with grpc.aio.insecure_channel(f"{served.address}:8080", options) as channel:
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
                call = channel.unary_unary("/shop.Web/Get")
                assert await call(b"hello") == b"hello"
                with pytest.raises(grpc.aio.AioRpcError, match="no such thing"):
                    await call(b"fail")
            values = await counted(served, 2)
    assert of(values, "route_requests_total") == {
        ("method=POST", "route=shop/calls/0", "status_class=2xx"): 2
    }
    assert of(values, "backend_requests_total") == {
        ("backend=Service/shop/web", "reason=", "status_class=2xx"): 2
    }


async def test_methods_of_clients_create_no_series(proxy: str) -> None:
    route = ir.Route("shop/web/0/0", ir.Match(ir.PathPrefix("/")), ir.Respond(204))
    async with logged(proxy, plain([host("a.example", route)])) as served:
        async with httpx.AsyncClient(http1=False, http2=True) as client:
            for number in range(50):
                method = "X" * 40 + "ABCDEFGHIJ"[number // 10] + "ABCDEFGHIJ"[number % 10]
                with contextlib.suppress(httpx.HTTPError):
                    await client.request(
                        method, f"http://{served.address}:8080/", headers={"Host": "a.example"}
                    )
        await _send(served, "/")
        await patience.until(lambda: any("method=GET" in key for key in series(served.requests)))
        values = of(series(served.requests), "route_requests_total")
    methods = {word for key in values for word in key if word.startswith("method=")}
    assert methods == {"method=GET", "method=other"}
    assert sum(values.values()) == 51


async def test_closed_connection_counts_without_a_status(proxy: str) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(silent) as endpoint:
        cluster = ir.Cluster("c", (endpoint,), origin=SERVICE)
        world = plain([host("a.example", route_to("c", "shop/web/0/0"))], [cluster])
        async with logged(proxy, world) as served:
            with contextlib.suppress(TimeoutError):
                await _send(served, "/", timeout=aiohttp.ClientTimeout(0.5))
            values = await counted(served, 1)
    assert of(values, "route_requests_total") == {
        ("method=GET", "route=shop/web/0", "status_class=none"): 1
    }


async def test_hostile_names_forge_no_lines(proxy: str) -> None:
    forged = "\n" + "\t".join(["a/b/0", "", "", "200", "GET|0.1", "", "", "1", "1"])
    route = ir.Route(f"shop/w{forged}eb/0/0", ir.Match(ir.PathPrefix("/")), ir.Respond(204))
    last = ir.Route("shop/last/0/0", ir.Match(ir.PathPrefix("/")), ir.Respond(204))
    hosts = [host("a.example", route), host("b.example", last)]
    async with logged(proxy, plain(hosts)) as served:
        for _ in range(3):
            await _send(served, "/")
        async with patience.limit():
            while not series(served.requests) and not served.requests.samples()[0].value:
                await patience.pause()
        # Its line follows those of the forged name.
        await _send(served, "/", "b.example")
        marker = ("method=GET", "route=shop/last/0", "status_class=2xx")
        await patience.until(
            lambda: of(series(served.requests), "route_requests_total").get(marker)
        )
        values = of(series(served.requests), "route_requests_total")
    assert not any("route=a/b" in word for key in values for word in key), values
    assert values.pop(marker) == 1
    assert sum(values.values()) <= 3
