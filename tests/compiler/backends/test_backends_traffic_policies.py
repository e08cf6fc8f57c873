"""TrafficPolicies as traffic meets them, on each proxy."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import aiohttp
import msgspec
import pytest

from differential.proxies import PORT, Runner, with_envoy, with_nginx
from fakes.envoy_serving import Answer, listening, route_to
from fakes.patience import limit, until
from fakes.served_objects import RUNNERS
from fakes.specified_objects import CLASS, route, service, serving_objects
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.backends.nginx import upstreams
from gatehouse.compiler.backends.nginx.actions import action_locations
from gatehouse.compiler.backends.nginx.features import NGINX_ROUTE_FEATURES
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import UpstreamSettings
from gatehouse.dataplane.origin import Origin

RULES = "- backendRefs: [{name: a, port: 80}]"
TO_ROUTE = "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}"
TO_SERVICE = '{group: "", kind: Service, name: a}'
TO_GATEWAY = "{group: gateway.networking.k8s.io, kind: Gateway, name: gw}"


def policy(fields: str, target: str = TO_ROUTE, name: str = "p") -> str:
    return f"""
apiVersion: gatehouse.dev/v1alpha1
kind: TrafficPolicy
metadata: {{name: {name}}}
spec:
  targetRefs: [{target}]
  {fields}
"""


def text_backend(types: dict[str, tuple[str, int]]) -> Answer:
    """Return a backend whose response has the type and length that its path names."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            media_type, length = types[head.split()[1].decode()]
            fields = f"content-type: {media_type}\r\ncontent-length: {length}"
            writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{'x' * length}".encode())
            await writer.drain()

    return answer


def failing_backend(failures: dict[str, int]) -> Answer:
    """Return a backend that answers 503 so often to requests of a path, and then 200."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            failures[path] -= 1
            status = "503 Unavailable" if failures[path] >= 0 else "200 OK"
            writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()

    return answer


async def status_of(address: str, path: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}:{PORT}{path}") as response,
    ):
        return response.status


OF_POLICY = Origin("TrafficPolicy", "ns", "p", "retries")


@pytest.mark.parametrize(
    ("retry", "able", "expected"),
    [
        pytest.param(ir.Retry(8, (503,), 0.1), True, {"attempts"}, id="too many with pauses"),
        pytest.param(ir.Retry(8, (503,), 0.1), False, {"backoff"}, id="no module for pauses"),
        pytest.param(ir.Retry(1, (499, 503)), True, {"codes"}, id="code that is not caught"),
        pytest.param(ir.Retry(4, (503,), 0.1), True, set(), id="nothing"),
    ],
)
def test_nginx_serves_a_route_without_what_it_lacks_of_the_retries_of_a_policy(
    retry: ir.Retry, able: bool, expected: set[str]
) -> None:
    retry = msgspec.structs.replace(retry, origin=OF_POLICY)
    unretried = route_to("c")
    assert isinstance(unretried.action, ir.Forward)
    modules = frozenset({"http_auth_request_module"} if able else ())
    capabilities = nginx.NginxCapabilities((1, 28, 0), modules)
    clusters = {"c": ir.Cluster("c", (ir.Endpoint("127.0.0.1", 9),))}
    context = NginxRouteContext("s", clusters, capabilities)
    findings = NGINX_ROUTE_FEATURES.findings(context, unretried.with_retry(retry))
    assert {one.setting for one in findings} == {OF_POLICY.field(name) for name in expected}
    assert action_locations(context, unretried.with_retry(retry)).piece.fixed


class HoldingBackend:
    """A backend that answers no request until it is released."""

    def __init__(self) -> None:
        self.held = self.most = 0
        self.released = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            self.held += 1
            self.most = max(self.most, self.held)
            await self.released.wait()
            self.held -= 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()


@pytest.mark.parametrize("endpoints", [1, 600])
def test_endpoints_with_limits_are_in_the_configuration_of_nginx_with_memory_for_all(
    endpoints: int,
) -> None:
    """An agent that resolves endpoints does not know their parameters."""
    settings = UpstreamSettings(endpoint_connections=7)
    addresses = tuple(ir.Endpoint(f"10.0.{n // 256}.{n % 256}", 80) for n in range(endpoints))
    capabilities = nginx.NginxCapabilities((1, 31, 0), named_endpoints=True)
    assert capabilities.resolving_upstreams
    cluster = ir.Cluster("c", addresses, settings=settings)
    [file] = upstreams.upstream_files(capabilities, "c", [(cluster, 1)])
    lines = [line.split() for line in file.content.decode().splitlines()]
    servers = [line[1:] for line in lines if line[0] == "server"]
    assert servers == [[f"{e.address}:80", "max_fails=0", "max_conns=7;"] for e in addresses]
    assert ["zone", "c", "1m;" if endpoints == 1 else "4m;"] in lines


RESPONSES = {
    "/long": ("application/json; charset=utf-8", 200),
    "/html": ("text/html", 200),
    "/short": ("application/json", 99),
    "/image": ("image/png", 200),
}
COMPRESSION = "compression: {mode: Enabled, types: [application/json], minLength: 100}"
GZIP_PARAMETERS = """
apiVersion: gatehouse.dev/v1alpha1
kind: GatewayParameters
metadata: {name: p}
spec: {compression: {type: gzip, minLength: 10, mimeTypes: [image/png], gzip: {vary: true}}}
"""


async def compressed(address: str, path: str, coding: str = "gzip") -> bool:
    """Return whether a client that accepts a coding gets the response compressed, and check it."""
    headers = {"Accept-Encoding": coding}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(f"http://{address}:{PORT}{path}", headers=headers) as response,
    ):
        body, expected = await response.read(), b"x" * RESPONSES[path][1]
        assert response.status == 200
        if response.headers.get("Content-Encoding") != "gzip":
            assert body == expected
            return False
        assert gzip.decompress(body) == expected
        assert "accept-encoding" in response.headers["Vary"].lower()
        return True


@pytest.mark.process
@pytest.mark.parametrize("proxy", RUNNERS)
async def test_responses_of_the_types_are_compressed_from_the_length_on(
    proxy: Runner, tmp_path: Path
) -> None:
    async with listening(text_backend(RESPONSES)) as endpoint:
        objects = [CLASS, service("a", endpoint), route(RULES), policy(COMPRESSION)]
        async with serving_objects(proxy, tmp_path, *objects) as served:
            answers = {path: await compressed(served.address, path) for path in RESPONSES}
            assert answers == {"/long": True, "/html": True, "/short": False, "/image": False}
            assert not await compressed(served.address, "/long", coding="identity")


OF_GATEWAY = policy(COMPRESSION.replace("minLength: 100", "minLength: 201"), TO_GATEWAY, "outer")
OF_ROUTE = policy(COMPRESSION)


@pytest.mark.process
@pytest.mark.parametrize("proxy", RUNNERS)
@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param([], {"/image"}, id="parameters"),
        pytest.param([OF_GATEWAY], set(), id="policy of the Gateway"),
        pytest.param([OF_GATEWAY, OF_ROUTE], {"/long"}, id="policy of the route"),
        pytest.param([policy("compression: {mode: Disabled}")], set(), id="none at the route"),
    ],
)
async def test_compression_of_a_policy_replaces_that_of_its_gateway(
    proxy: Runner, policies: list[str], expected: set[str], tmp_path: Path
) -> None:
    reference = "{group: gatehouse.dev, kind: GatewayParameters, name: p}"
    parent = f"infrastructure: {{parametersRef: {reference}}}\n  gatewayClassName: c"
    gateway = CLASS.replace("gatewayClassName: c", parent)
    async with listening(text_backend(RESPONSES)) as endpoint:
        objects = [gateway, service("a", endpoint), route(RULES), GZIP_PARAMETERS, *policies]
        async with serving_objects(proxy, tmp_path, *objects) as served:
            for path in ("/long", "/image"):
                assert await compressed(served.address, path) == (path in expected)


RETRIED_RULES = """
- matches: [{path: {value: /own}}]
  retry: {attempts: 1, codes: [503]}
  backendRefs: [{name: a, port: 80}]
- matches: [{path: {value: /never}}]
  retry: {attempts: 0}
  backendRefs: [{name: a, port: 80}]
- matches: [{path: {value: /default}}]
  backendRefs: [{name: a, port: 80}]
"""


@pytest.mark.process
@pytest.mark.parametrize("proxy", RUNNERS)
async def test_requests_are_sent_again_as_the_policy_says_unless_their_rule_does(
    proxy: Runner, tmp_path: Path
) -> None:
    failures = {"/default/2": 2, "/default/3": 3, "/own/1": 1, "/own/2": 2, "/never/1": 1}
    fields = "retries: {attempts: 2, codes: [503]}"
    async with listening(failing_backend(failures)) as endpoint:
        objects = [CLASS, service("a", endpoint), route(RETRIED_RULES), policy(fields, TO_GATEWAY)]
        async with serving_objects(proxy, tmp_path, *objects) as served:
            answers = {path: await status_of(served.address, path) for path in [*failures]}
    assert answers == {
        "/default/2": 200, "/default/3": 503, "/own/1": 200, "/own/2": 503, "/never/1": 503,
    }  # fmt: skip
    assert failures["/default/3"] == failures["/never/1"] == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("proxy", "limits", "waiting", "status"),
    [
        pytest.param(with_nginx, "maxConnectionsPerEndpoint: 2", 0, 502, id="nginx endpoint"),
        pytest.param(with_envoy, "maxParallelRequests: 2", 0, 503, id="envoy requests"),
        pytest.param(
            with_envoy, "maxConnections: 2, maxPendingRequests: 1", 1, 503, id="envoy connections"
        ),
        pytest.param(
            with_envoy,
            "maxConnectionsPerEndpoint: 2, maxPendingRequests: 1",
            1,
            503,
            id="envoy endpoint",
        ),
    ],
)
async def test_request_beyond_the_limits_of_a_service_is_rejected(
    proxy: Runner, limits: str, waiting: int, status: int, tmp_path: Path
) -> None:
    backend = HoldingBackend()
    async with listening(backend.answer) as endpoint:
        breaker = policy(f"backend: {{circuitBreaker: {{{limits}}}}}", TO_SERVICE)
        objects = [CLASS, service("a", endpoint), route(RULES), breaker]
        async with serving_objects(proxy, tmp_path, *objects) as served, limit():
            first = []
            for held in (1, 2):
                first.append(asyncio.create_task(status_of(served.address, "/")))
                await until(lambda held=held: backend.held == held)  # type: ignore[misc]
            others = [
                asyncio.create_task(status_of(served.address, "/")) for _ in range(waiting + 1)
            ]
            early = asyncio.as_completed(others)
            assert await next(early) == status
            backend.released.set()
            assert await asyncio.gather(*first, *early) == [200] * (2 + waiting)
    assert backend.most == 2
