"""Health checks of TrafficPolicies, as traffic meets them on each proxy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from envoy.config.endpoint.v3 import endpoint_pb2

from differential.proxies import PORT, Runner, with_envoy, with_nginx
from fakes.envoy_serving import listening
from fakes.patience import limit, until
from fakes.served_objects import RUNNERS
from fakes.specified_objects import CLASS, route, service, serving_objects
from gatehouse.compiler.backends.envoy import clusters
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import MAX_CHECKED_ENDPOINTS, ActiveChecks, UpstreamSettings

pytestmark = pytest.mark.process

TIMED_RULES = """
- timeouts: {request: 300ms, backendRequest: 300ms}
  backendRefs: [{name: a, port: 80}]
"""


def checks(fields: str) -> str:
    return f"""
apiVersion: gatehouse.dev/v1alpha1
kind: TrafficPolicy
metadata: {{name: p}}
spec:
  targetRefs: [{{group: "", kind: Service, name: a}}]
  backend: {{healthChecks: {fields}}}
"""


class SilentBackend:
    """A backend that does not answer the first requests."""

    def __init__(self, silent: int) -> None:
        self.silent, self.requests = silent, 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            if self.requests > self.silent:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()


async def status_of(address: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}:{PORT}/") as response,
    ):
        return response.status


@contextlib.asynccontextmanager
async def serving_backends(
    proxy: Runner, directory: Path, policy: str, *backends: SilentBackend | ReadyBackend
) -> AsyncIterator[str]:
    async with contextlib.AsyncExitStack() as stack:
        endpoints = [await stack.enter_async_context(listening(b.answer)) for b in backends]
        objects = [CLASS, service("a", *endpoints), route(TIMED_RULES), policy]
        served = await stack.enter_async_context(serving_objects(proxy, directory, *objects))
        await stack.enter_async_context(limit())
        yield served.address


@pytest.mark.parametrize("proxy", RUNNERS)
async def test_endpoint_gets_no_requests_after_so_many_timeouts(
    proxy: Runner, tmp_path: Path
) -> None:
    silent, good = SilentBackend(1000), SilentBackend(0)
    policy = checks("{passive: {maxFailures: 2, ejectionTime: 1h}}")
    async with serving_backends(proxy, tmp_path, policy, silent, good) as address:

        async def ejected() -> bool:
            return [await status_of(address) for _ in range(6)] == [200] * 6

        await until(ejected)
        # Envoy ejects a moment after the failure.
        assert 2 <= silent.requests <= 3


@pytest.mark.parametrize("proxy", RUNNERS)
async def test_ejected_endpoint_gets_requests_after_the_time(proxy: Runner, tmp_path: Path) -> None:
    silent, good = SilentBackend(1), SilentBackend(0)
    policy = checks("{passive: {maxFailures: 1, ejectionTime: 1s}}")
    async with serving_backends(proxy, tmp_path, policy, silent, good) as address:
        await until(lambda: _reached(address, silent, 1))
        await until(lambda: _reached(address, silent, 2))


async def _reached(address: str, backend: SilentBackend, requests: int) -> bool:
    await status_of(address)
    return backend.requests >= requests


@pytest.mark.parametrize("proxy", RUNNERS)
async def test_only_endpoint_is_used_whatever_fails(proxy: Runner, tmp_path: Path) -> None:
    only = SilentBackend(3)
    policy = checks("{passive: {maxFailures: 1, ejectionTime: 1h}}")
    async with serving_backends(proxy, tmp_path, policy, only) as address:
        assert [await status_of(address) for _ in range(4)] == [504, 504, 504, 200]


@pytest.mark.parametrize(
    ("proxy", "statuses"),
    [
        pytest.param(with_nginx, {502}, id="nginx"),
        pytest.param(with_envoy, {504}, id="envoy uses all"),
    ],
)
async def test_answer_without_endpoints_that_are_not_ejected(
    proxy: Runner, statuses: set[int], tmp_path: Path
) -> None:
    policy = checks("{passive: {maxFailures: 1, ejectionTime: 1h}}")
    backends = SilentBackend(1000), SilentBackend(1000)
    async with serving_backends(proxy, tmp_path, policy, *backends) as address:
        await until(lambda: _reached(address, backends[0], 1))
        await until(lambda: _reached(address, backends[1], 1))
        assert {await status_of(address) for _ in range(4)} == statuses


class ReadyBackend:
    """A backend that answers checks with a status, and counts other requests."""

    def __init__(self, status: str) -> None:
        self.status, self.requests = status, 0
        self.checks: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            is_check = head.startswith(b"GET /ready?x=1 ")
            if is_check:
                self.checks.append(head)
            else:
                self.requests += 1
            status = self.status if is_check else "200 OK"
            writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()


@pytest.mark.parametrize(
    ("status", "is_used"), [("503 Unavailable", False), ("399 Good", True), ("404 Absent", False)]
)
async def test_envoy_sends_requests_to_endpoints_that_pass_checks(
    status: str, is_used: bool, tmp_path: Path
) -> None:
    bad, good = ReadyBackend(status), ReadyBackend("200 OK")
    policy = checks("{active: {path: '/ready?x=1', maxFailures: 1}}")
    async with serving_backends(with_envoy, tmp_path, policy, bad, good) as address:
        await until(lambda: bad.checks and good.checks)

        async def decided() -> bool:
            before = bad.requests, good.requests
            assert [await status_of(address) for _ in range(6)] == [200] * 6
            added = bad.requests - before[0], good.requests - before[1]
            return added == ((3, 3) if is_used else (0, 6))

        await until(decided)
        assert b"\r\nhost: a.ns\r\n" in bad.checks[0].lower()


def test_envoy_checks_so_many_endpoints_of_a_service_port_at_most() -> None:
    addresses = tuple(ir.Endpoint(f"10.0.0.{n}", 80) for n in range(MAX_CHECKED_ENDPOINTS + 2))
    settings = UpstreamSettings(active_checks=ActiveChecks("/", 10.0, 2.0, 3, 1))
    [resource] = clusters.build_endpoints(ir.Cluster("c", addresses, settings=settings))
    proto = endpoint_pb2.ClusterLoadAssignment.FromString(resource.body)
    unchecked = [
        entry.endpoint.health_check_config.disable_active_health_check
        for entry in proto.endpoints[0].lb_endpoints
    ]
    assert unchecked == [False] * MAX_CHECKED_ENDPOINTS + [True] * 2
