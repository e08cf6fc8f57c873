"""Targets and methods for which HTTP leaves a choice, weights, and backends that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from differential import proxies
from differential.proxies import PORT, Runner
from fakes import envoys, patience
from fakes.authorized_traffic import NGINX, RUNNERS, Served, served
from fakes.envoy_serving import backend
from fakes.loopback import loopback_network
from fakes.one_route import BACKEND
from fakes.specified_objects import CLASS, compiled_gateway, route, service, serving_objects
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.ir.http import Endpoint

pytestmark = pytest.mark.process

ENVOY = proxies.with_envoy
RULES = (
    {"matches": [{"path": {"value": "/a"}}], "backendRefs": [BACKEND]},
    {"matches": [{"path": {"value": "/x"}}], "backendRefs": [BACKEND]},
)


async def raw(address: str, line: str) -> tuple[int, bytes]:
    """Send a request line as it is. Return the status, and the body."""
    reader, writer = await asyncio.open_connection(address, PORT)
    writer.write(f"{line} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n".encode())
    async with patience.limit():
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    ("runner", "line", "expected", "target"),
    [
        pytest.param(NGINX, "GET /../a", 400, "", id="nginx above the root"),
        pytest.param(ENVOY, "GET /../a", 200, "/a", id="envoy above the root"),
        pytest.param(NGINX, "GET /x/../a", 200, "/x/../a", id="nginx dot segments"),
        pytest.param(ENVOY, "GET /x/../a", 200, "/a", id="envoy dot segments"),
        pytest.param(NGINX, "GET /a#b", 200, "/a#b", id="nginx fragment"),
        pytest.param(ENVOY, "GET /a#b", 400, "", id="envoy fragment"),
        pytest.param(NGINX, "OPTIONS *", 400, "", id="nginx asterisk"),
        pytest.param(ENVOY, "OPTIONS *", 404, "", id="envoy asterisk"),
        pytest.param(NGINX, "GET /a\\b", 404, "", id="nginx backslash"),
        pytest.param(ENVOY, "GET /a\\b", 200, "/a/b", id="envoy backslash"),
        pytest.param(NGINX, "TRACE /a", 405, "", id="nginx trace"),
        pytest.param(NGINX, "CONNECT a.example:80", 405, "", id="nginx connect"),
    ],
)
async def test_target_is_answered_as_documented(
    runner: Runner, line: str, expected: int, target: str, tmp_path: Path
) -> None:
    async with served(runner, tmp_path, 0, *RULES) as proxy:
        status, body = await raw(proxy.address, line)
        assert status == expected
        assert f'"target":"{target}"'.encode() in body.replace(b" ", b"") or not target


@pytest.mark.parametrize("method", ["TRACE", "CONNECT"])
async def test_match_of_a_method_that_nginx_answers_itself_is_reported(
    method: str, tmp_path: Path
) -> None:
    reason = f"method {method}: NGINX answers it with status 405"
    matched = {"matches": [{"method": method}], "backendRefs": [BACKEND]}
    runner = functools.partial(NGINX, unsupported=(reason,))
    async with served(runner, tmp_path, 0, matched, *RULES) as proxy:
        assert (await proxy.send("/a"))[0] == 200


async def test_weights_on_nginx_are_exact_if_a_service_repeats(tmp_path: Path) -> None:
    """ "Weight specifies the proportion of requests forwarded to the referenced backend. This is
    computed as weight/(sum of all weights in this BackendRefs list)." (BackendRef.weight)"""
    rules = """
- backendRefs:
  - {name: a, port: 80, weight: 1}
  - {name: b, port: 80, weight: 3}
  - {name: a, port: 80, weight: 2}
"""
    async with contextlib.AsyncExitStack() as stack:
        services = [service(name, await stack.enter_async_context(backend(name))) for name in "ab"]
        objects = [CLASS, *services, route(rules)]
        proxy = await stack.enter_async_context(serving_objects(NGINX, tmp_path, *objects))
        counts = Counter([(await proxy.send("/"))[2]["service"] for _ in range(24)])
        assert counts == {"a": 12, "b": 12}


@pytest.mark.parametrize("runner", RUNNERS)
async def test_exhausted_attempts_have_the_status_of_the_last_one(
    runner: Runner, tmp_path: Path
) -> None:
    """ "If the maximum number of retries has been attempted without a successful response from the
    backend, the Gateway MUST return an error." (HTTPRouteRetry.attempts)"""
    statuses = iter([503, 500, 503, 500])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(f"HTTP/1.1 {next(statuses)} X\r\nContent-Length: 0\r\n\r\n".encode())

    rule = {"backendRefs": [BACKEND], "retry": {"codes": [500, 503], "attempts": 3}}
    async with served(runner, tmp_path, 0, rule, answer=answer) as proxy:
        assert (await proxy.send("/a"))[0] == 500
    assert next(statuses, None) is None


@pytest.mark.parametrize("timeouts", [{}, {"timeouts": {"request": "5s"}}], ids=["", "timeout"])
@pytest.mark.parametrize("runner", RUNNERS)
async def test_zero_attempts_disable_retries(
    runner: Runner, timeouts: dict[str, object], tmp_path: Path
) -> None:
    """ "An explicit zero value MUST disable retries." (HTTPRouteRetry.attempts)"""
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    rule = {"backendRefs": [BACKEND], "retry": {"codes": [500], "attempts": 0}, **timeouts}
    async with served(runner, tmp_path, 0, rule, answer=answer) as proxy:
        assert (await proxy.send("/a"))[0] in (502, 503)
    assert len(requests) == 1


@pytest.mark.parametrize("refused", [1, 20])
async def test_envoy_serves_a_service_as_soon_as_it_has_ready_endpoints(
    refused: int, tmp_path: Path
) -> None:
    """ "When a HTTPBackendRef refers to a Service that has no ready endpoints, implementations
    SHOULD return a 503 for requests to that backend instead." (HTTPRouteRule.backendRefs)"""
    address = f"{loopback_network()}.1"
    async with backend("a") as endpoint, envoys.running(tmp_path) as running:

        def publish(*endpoints: Endpoint) -> None:
            gateway = compiled_gateway(CLASS, service("a", *endpoints), route(ONLY))
            bound = msgspec.structs.replace(gateway, bind_address=address)
            generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(bound)
            running.ads.publish(generated.resources)

        publish()
        proxy = Served(address)
        await patience.until(functools.partial(_accepts, address))
        for _ in range(refused):
            assert (await proxy.send("/"))[0] == 503
        publish(endpoint)
        async with patience.limit():
            await running.ads.settled()
        assert [(await proxy.send("/"))[0] for _ in range(8)] == [200] * 8
        publish()
        async with patience.limit():
            await running.ads.settled()
        assert (await proxy.send("/"))[0] == 503


ONLY = "- backendRefs: [{name: a, port: 80}]"


def _accepts(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, PORT)):
        return True
    return False
