"""Answers of the gateway itself to gRPC calls: what clients of gRPC's C core get."""

from __future__ import annotations

from typing import Any

import aiohttp
import grpc
import msgspec
import pytest
from envoy.config.route.v3 import route_components_pb2 as components

from fakes.envoy_serving import host, plain, route_to
from fakes.logged_gateways import ABLE, PROXIES, LoggedGateway, logged
from gatehouse.compiler.backends.envoy import EnvoyCapabilities, EnvoyGenerator
from gatehouse.compiler.backends.nginx import NginxGenerator
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic
from gatehouse.compiler.ir.settings import Attribute, RateLimit, RateLimits, Settings
from gatehouse.dataplane.origin import Origin

SERVICE = Origin("Service", "shop", "calls")
HASHES = ir_gateway.SecretBytes(b"me:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n")
USERS = ir_gateway.SecretFile("users", HASHES)
LIMIT = RateLimit("ns/p/0", (Attribute("binary_remote_addr"),), 1, "minute", 1 << 20)


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def gateway(**more: Any) -> ir_gateway.GatewayConfiguration:
    """Return a gateway with calls on ``a.example``, and without calls on ``web.example``."""
    invalid = ir.Route(
        "shop/calls/3/0", ir.Match(ir.PathPrefix("/shop.Invalid")), ir.Respond(500, grpc=True)
    )
    limited = Settings(rates=RateLimits((LIMIT,), status=429))
    routes = [
        route_to("none", "shop/calls/0/0", "/shop.Empty", grpc=True),
        route_to("closed", "shop/calls/1/0", "/shop.Closed", grpc=True),
        route_to("closed", "shop/calls/2/0", "/shop.Limited", grpc=True, settings=limited),
        invalid,
        route_to("closed", "shop/calls/4/0", "/shop.Secret", grpc=True,
                 authentication=Basic("realm", "users")),
    ]  # fmt: skip
    clusters = [
        ir.Cluster("closed", (ir.Endpoint("127.0.0.1", 9),), "grpc", origin=SERVICE),
        ir.Cluster("none", (), "grpc", origin=SERVICE),
    ]
    web = host("web.example", route_to("none", "shop/web/0/0", "/only"))
    return plain([host("a.example", *routes), web], clusters, secrets=(USERS,), **more)


class Outcome(msgspec.Struct, frozen=True):
    """Result of a call at the client."""

    code: grpc.StatusCode
    message: str
    initial: int
    """Number of headers before the trailers: 0 for a trailers-only response."""


async def call(served: LoggedGateway, path: str, authority: str = "a.example") -> Outcome:
    """Send a call to a method."""
    options = [("grpc.default_authority", authority), ("grpc.enable_http_proxy", 0)]
    async with grpc.aio.insecure_channel(f"{served.address}:8080", options=options) as channel:
        # The stubs lack methods without serializers.
        method: Any = channel.unary_unary(path)
        sent = method(b"hello", timeout=10)
        code, message = await sent.code(), await sent.details()
        return Outcome(code, message, len(tuple(await sent.initial_metadata() or ())))


ANSWERS = {
    ("/shop.Missing/Get", "a.example"): (grpc.StatusCode.UNIMPLEMENTED, "no_route", 12),
    ("/shop.Api/Get", "unknown.example"): (grpc.StatusCode.UNIMPLEMENTED, "no_route", 12),
    ("/shop.Empty/Get", "a.example"): (grpc.StatusCode.UNAVAILABLE, "no_endpoint", 14),
    ("/shop.Closed/Get", "a.example"): (grpc.StatusCode.UNAVAILABLE, "connection_failure", 14),
    ("/shop.Invalid/Get", "a.example"): (grpc.StatusCode.UNAVAILABLE, "invalid_route", 14),
    ("/shop.Secret/Get", "a.example"): (grpc.StatusCode.UNAUTHENTICATED, "authentication", 16),
}
"""Status, reason in the access log and number of the status, by method and host."""


@pytest.mark.process
async def test_call_that_no_backend_answers_gets_a_status_of_grpc(proxy: str) -> None:
    async with logged(proxy, gateway()) as served:
        for (path, authority), (code, reason, number) in ANSWERS.items():
            outcome = await call(served, path, authority)
            assert (outcome.code, outcome.initial) == (code, 0), (path, outcome)
            entry = await served.entry(path=path)
            assert (entry["status"], entry["grpc_status"], entry["reason"]) == (
                200, number, reason,
            ), path  # fmt: skip


@pytest.mark.process
async def test_repeated_calls_get_the_same_status(proxy: str) -> None:
    """A response with a body gives one of two statuses by chance."""
    async with logged(proxy, gateway()) as served:
        for authority in ("a.example", "unknown.example"):
            codes = {(await call(served, "/shop.Missing/Get", authority)).code for _ in range(50)}
            assert codes == {grpc.StatusCode.UNIMPLEMENTED}


@pytest.mark.process
async def test_call_above_a_rate_limit_is_unavailable(proxy: str) -> None:
    async with logged(proxy, gateway()) as served:
        await call(served, "/shop.Limited/First")
        assert (await call(served, "/shop.Limited/Second")).code is grpc.StatusCode.UNAVAILABLE
        entry = await served.entry(path="/shop.Limited/Second")
        assert (entry["grpc_status"], entry["reason"]) == (14, "rate_limit")


@pytest.mark.process
async def test_nginx_tells_the_client_the_reason() -> None:
    async with logged("nginx", gateway()) as served:
        messages = [(await call(served, *key)).message for key in ANSWERS]
    assert messages == [
        "no route matches the call",
        "no route matches the call",
        "no backend of the route is available",
        "the connection to the backend failed",
        "no backend of the route is available",
        "the call has no valid credentials",
    ]


@pytest.mark.process
@pytest.mark.parametrize(("path", "status"), [("/shop.Missing/Get", 404), ("/shop.Empty/Get", 503)])
@pytest.mark.parametrize("content_type", ["", "application/grpc-web", "text/plain"])
async def test_request_that_is_no_call_gets_a_status_of_http(
    proxy: str, path: str, status: int, content_type: str
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    async with logged(proxy, gateway()) as served, aiohttp.ClientSession() as session:
        url = f"http://{served.address}:8080{path}"
        for authority in ("a.example", "unknown.example"):
            async with session.get(url, headers={"Host": authority, **headers}) as answer:
                expected = status if authority == "a.example" else 404
                assert answer.status == expected
                assert not [name for name in answer.headers if name.lower().startswith("grpc-")]
                assert answer.content_type != "application/grpc"


@pytest.mark.process
async def test_call_to_a_hostname_without_grpc_routes_gets_a_page_from_nginx_only(
    proxy: str,
) -> None:
    headers = {"Host": "web.example", "Content-Type": "application/grpc"}
    async with logged(proxy, gateway()) as served, aiohttp.ClientSession() as session:
        url = f"http://{served.address}:8080/shop.Api/Get"
        async with session.post(url, headers=headers) as answer:
            statuses = (answer.status, answer.headers.get("grpc-status", ""))
    assert statuses == ((404, "") if proxy == "nginx" else (200, "12"))


def unserved() -> ir_gateway.GatewayConfiguration:
    """Return a gateway with a route for calls that neither proxy can express."""
    edit = ir.HeaderEdit(set=(ir.HeaderValue("x-a", "a\nb"),))
    route = route_to("c", "shop/calls/0/0", "/shop.Api", grpc=True, request_headers=edit)
    endpoint = ir.Endpoint("127.0.0.1", 9)
    return plain([host("a.example", route)], [ir.Cluster("c", (endpoint,), "grpc")])


def test_calls_of_a_route_that_nginx_cannot_express_are_unavailable() -> None:
    generated = NginxGenerator(ABLE).generate(unserved())
    assert [finding.served for finding in generated.unsupported] == [False]
    files = generated.file_set.files.items()
    (text,) = [file.content.decode() for path, file in files if "/8080-a.example" in path]
    assert "return 500" not in text
    assert "error_page 418 = @gh_grpc_14;" in text


def test_calls_of_a_route_that_envoy_cannot_express_are_unavailable() -> None:
    generated = EnvoyGenerator(EnvoyCapabilities()).generate(unserved())
    assert [finding.served for finding in generated.unsupported] == [False]
    by_type = generated.resources.by_type.values()
    resources = [entry for named in by_type for entry in named.values()]
    unavailable = components.DirectResponseAction(status=503).SerializeToString()
    assert any(unavailable in entry.body for entry in resources)
