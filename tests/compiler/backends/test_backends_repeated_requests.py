"""Requests that a rule with retries sends again, by method and failure, on both proxies.

HTTPRouteRetry of Gateway API 1.7: "Implementations SHOULD NOT retry by default on failures where
the request may have been processed (e.g., a connection reset after the request was sent)". RFC
9110, 9.2.2, permits it for idempotent methods: "a repeated request will have the same intended
effect".
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import itertools
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from differential import proxies
from differential.proxies import Runner
from fakes import authorization_servers
from fakes.authority import Authority
from fakes.authorized_traffic import Served, rule, served
from fakes.envoy_serving import host, listening, plain, route_to
from fakes.loopback import free_port, loopback_network
from fakes.one_route import BACKEND
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import Attribute, RateLimit, RateLimits, Settings

pytestmark = pytest.mark.process

RUNNERS = [
    pytest.param(
        functools.partial(proxies.with_nginx, modules=("http_auth_request_module",)), id="nginx"
    ),
    pytest.param(proxies.with_envoy, id="envoy"),
]
ATTEMPT_SECONDS = 0.3
ATTEMPTS = 3
"""The first attempt, and two retries."""


class Case(msgspec.Struct, frozen=True):
    """A failure of the backend, and the attempts for each class of methods."""

    failure: str
    idempotent: int
    other: int
    status: int | None = None
    """Status of the response; None: the proxies differ."""
    codes: tuple[int, ...] = ()
    attempt: float = 0.0
    """Timeout of each attempt in seconds."""


CASES = {
    "/reset": Case("reset", ATTEMPTS, 1),
    "/closed": Case("close", ATTEMPTS, 1),
    # The status with which NGINX answers for a lost connection.
    "/reset-and-502": Case("reset", ATTEMPTS, 1, codes=(502,)),
    "/silent": Case("silence", ATTEMPTS, 1, 504, attempt=ATTEMPT_SECONDS),
    "/silent-and-504": Case("silence", ATTEMPTS, 1, 504, codes=(504,), attempt=ATTEMPT_SECONDS),
    "/503": Case("503", 1, 1, 503),
    "/502": Case("502", 1, 1, 502),
    "/503-is-a-code": Case("503", ATTEMPTS, ATTEMPTS, 503, codes=(500, 503)),
    "/504-is-a-code": Case("504", ATTEMPTS, ATTEMPTS, 504, codes=(504,)),
    "/500-is-no-code": Case("500", 1, 1, 500, codes=(503,)),
}
IDEMPOTENT = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
OTHERS = ("POST", "PATCH", "LOCK")
SETTINGS: dict[str, tuple[float, float]] = {
    "at once": (0.0, 0.0),
    "with pause": (0.001, 0.0),
    "until a timeout": (0.0, 3600.0),
    "with pause until a timeout": (0.001, 3600.0),
}
"""Pause before a retry, and timeout of the request."""


class FailingBackend:
    """A backend that counts requests by method and path, and fails as the case of the path says."""

    def __init__(self) -> None:
        self.attempts: collections.Counter[tuple[str, str]] = collections.Counter()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.decode().split(" ", 2)
            if b"content-length: 4" in head.lower():
                await reader.readexactly(4)
            self.attempts[method, path] += 1
            match CASES[path].failure:
                case "silence":
                    # Until the proxy gives up.
                    await reader.read()
                    return
                case "reset":
                    end_by_reset(writer)
                    return
                case "close":
                    writer.close()
                    return
                case status:
                    text = f"HTTP/1.1 {status} Failed\r\nContent-Length: 0\r\n\r\n"
                    writer.write(text.encode())


class HangingUpBackend:
    """A backend that ends connections in the TLS handshake, and counts them."""

    def __init__(self) -> None:
        self.connections = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await reader.read(1 << 16)
        writer.close()


def end_by_reset(writer: asyncio.StreamWriter) -> None:
    own = writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


@contextlib.asynccontextmanager
async def proxied(
    runner: Runner,
    directory: Path,
    routes: list[ir.Route],
    *clusters: ir.Cluster,
    hostname: str = "a.example",
    **more: Any,
) -> AsyncIterator[Served]:
    """Serve routes of a hostname, to which all requests are sent."""
    address = f"{loopback_network()}.1"
    gateway = plain([host(hostname, *routes)], clusters, bind_address=address, **more)
    async with runner(gateway, directory):
        yield Served(address)


def body_of(method: str) -> bytes | None:
    return b"body" if method in ("PUT", *OTHERS) else None


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("settings", SETTINGS)
async def test_only_idempotent_requests_are_sent_again_if_the_backend_may_have_processed_them(
    runner: Runner, tmp_path: Path, settings: str
) -> None:
    pause, timeout = SETTINGS[settings]
    backend = FailingBackend()
    routes = [
        route_to(
            "c", f"ns/r/{number}/0", path, retry=ir.Retry(ATTEMPTS - 1, case.codes, pause),
            request_timeout=timeout, backend_timeout=case.attempt,
        )
        for number, (path, case) in enumerate(CASES.items())
    ]  # fmt: skip
    async with (
        listening(backend.answer) as endpoint,
        proxied(runner, tmp_path, routes, ir.Cluster("c", (endpoint,))) as proxy,
    ):
        pairs = [*itertools.product((*IDEMPOTENT, *OTHERS), CASES)]
        sent = (proxy.send(path, method, body_of(method)) for method, path in pairs)
        answers = await asyncio.gather(*sent)
    for (method, path), (status, _, _) in zip(pairs, answers, strict=True):
        case = CASES[path]
        attempts = case.idempotent if method in IDEMPOTENT else case.other
        assert backend.attempts[method, path] == attempts, (method, path)
        assert status == case.status or (case.status is None and status in (502, 503))


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("settings", SETTINGS)
async def test_request_is_sent_again_if_no_backend_has_received_it(
    runner: Runner, tmp_path: Path, settings: str
) -> None:
    pause, timeout = SETTINGS[settings]
    backend = HangingUpBackend()
    trust = ir_gateway.TrustBundle("trust", Authority(tmp_path).pem)
    retry = ir.Retry(ATTEMPTS - 1, (), pause)
    routes = [route_to("c", retry=retry, request_timeout=timeout)]
    async with listening(backend.answer) as endpoint:
        cluster = ir.Cluster("c", (endpoint,), tls=ir.BackendTls("a.internal", "trust"))
        async with proxied(runner, tmp_path, routes, cluster, trust_bundles=(trust,)) as proxy:
            for number, method in enumerate((*IDEMPOTENT, *OTHERS), 1):
                assert (await proxy.send("/a", method, body_of(method)))[0] in (502, 503)
                assert backend.connections == number * ATTEMPTS, method


@pytest.mark.parametrize("runner", RUNNERS)
async def test_request_is_sent_to_another_endpoint_if_one_refuses_the_connection(
    runner: Runner, tmp_path: Path
) -> None:
    backend = FailingBackend()
    async with listening(backend.answer) as endpoint:
        dead = ir.Endpoint("127.0.0.1", free_port())
        cluster = ir.Cluster("c", tuple(sorted((dead, endpoint))))
        routes = [route_to("c", "ns/r/0/0", "/", retry=ir.Retry(2))]
        async with proxied(runner, tmp_path, routes, cluster) as proxy:
            for method in (*IDEMPOTENT, *OTHERS) * 3:
                assert (await proxy.send("/503", method, body_of(method)))[0] == 503
    assert set(backend.attempts.values()) == {3}


@pytest.mark.parametrize("runner", RUNNERS)
async def test_post_is_not_repeated_after_a_response_that_is_no_code(
    runner: Runner, tmp_path: Path
) -> None:
    """NGINX gives a lost connection the same status."""
    backend = FailingBackend()
    async with listening(backend.answer) as endpoint:
        cluster = ir.Cluster("c", (endpoint,))
        routes = [route_to("c", "ns/r/0/0", "/", retry=ir.Retry(2, (503,)))]
        async with proxied(runner, tmp_path, routes, cluster) as proxy:
            for path in ("/502", "/504-is-a-code"):
                status, _, _ = await proxy.send(path, "POST", b"body")
                assert (status, backend.attempts["POST", path]) == (int(path[1:4]), 1)


class ClosingBackend:
    """A backend that answers the first request of a connection, and closes it on the second."""

    def __init__(self) -> None:
        self.requests = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for first in (True, False):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(4)
            self.requests += 1
            if first:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostname", ["a.example", "*.example", ""])
async def test_post_on_an_idle_connection_that_ends_is_not_repeated(
    runner: Runner, tmp_path: Path, hostname: str
) -> None:
    backend = ClosingBackend()
    async with listening(backend.answer) as endpoint:
        cluster = ir.Cluster("c", (endpoint,))
        routes = [route_to("c", "ns/r/0/0", "/", retry=ir.Retry(2))]
        async with proxied(runner, tmp_path, routes, cluster, hostname=hostname) as proxy:
            statuses = [
                (await proxy.send("/a", "POST", b"body", X_Gh_Retry_On="reset"))[0]
                for _ in range(6)
            ]
    assert backend.requests == 6
    assert {200} < set(statuses) <= {200, 502, 503}


@pytest.mark.parametrize("runner", RUNNERS)
async def test_requests_are_repeated_after_the_check_of_an_authorization_server(
    runner: Runner, tmp_path: Path
) -> None:
    backend = FailingBackend()
    async with authorization_servers.http_server() as auth:
        checked = rule("/") | {"retry": {"attempts": ATTEMPTS - 1}}
        async with served(runner, tmp_path, auth.port, checked, answer=backend.answer) as proxy:
            for method in (*IDEMPOTENT, *OTHERS):
                assert (await proxy.send("/reset", method, body_of(method)))[0] in (502, 503)
    expected = {(method, "/reset"): ATTEMPTS for method in IDEMPOTENT}
    assert backend.attempts == expected | {(method, "/reset"): 1 for method in OTHERS}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("timeouts", [{}, {"request": "1h"}], ids=["no timeout", "timeout"])
async def test_every_attempt_has_the_filters_of_one_backend_reference(
    runner: Runner, tmp_path: Path, timeouts: dict[str, str]
) -> None:
    """Also if a rule has several references to one Service."""
    versions: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            versions.append(head.partition(b"x-version: ")[2][:1])
            writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    def reference(version: str) -> dict[str, Any]:
        edit = {"set": [{"name": "X-Version", "value": version}]}
        filters = [{"type": "RequestHeaderModifier", "requestHeaderModifier": edit}]
        return {**BACKEND, "filters": filters}

    retried = {
        "backendRefs": [reference("1"), reference("2")],
        "retry": {"attempts": 1, "codes": [503]},
        "timeouts": timeouts,
    }
    async with served(runner, tmp_path, 0, retried, answer=answer) as proxy:
        for _ in range(40):
            assert (await proxy.send("/a"))[0] == 503
    assert versions[::2] == versions[1::2]
    assert {*versions} == {b"1", b"2"}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("status", [None, 429, 502], ids=["default", "429", "502"])
async def test_request_above_a_rate_limit_is_not_sent_again(
    runner: Runner, tmp_path: Path, settings: str, status: int | None
) -> None:
    """NGINX rejects it with a status that may be one of the codes."""
    pause, timeout = SETTINGS[settings]
    backend = FailingBackend()
    limit = RateLimit("limit", (Attribute("binary_remote_addr"),), 1, "minute", 1 << 20)
    limited = Settings(rates=RateLimits((limit,), status))
    retry = ir.Retry(1, (429, 500, 503), pause)
    routes = [route_to("c", retry=retry, request_timeout=timeout, settings=limited)]
    async with (
        listening(backend.answer) as endpoint,
        proxied(runner, tmp_path, routes, ir.Cluster("c", (endpoint,))) as proxy,
    ):
        statuses = [(await proxy.send("/500-is-no-code", method))[0] for method in ("GET", "POST")]
    # A request is counted once, however often it is sent.
    assert backend.attempts == {("GET", "/500-is-no-code"): 2}
    assert statuses[0] == 500
    assert statuses[1] in ((status,) if status else (429, 503))
