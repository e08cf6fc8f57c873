"""Budgets of retries (XBackendTrafficPolicy.retryConstraint), served by a real Envoy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from differential.proxies import PORT, with_envoy
from fakes.envoy_serving import listening
from fakes.patience import limit, until
from fakes.specified_objects import CLASS, route, service, serving_objects

CLIENTS = 10

RULE = """
- retry: {attempts: 1, codes: [500]}
  backendRefs: [{name: a, port: 80}]
"""
SMALLEST = "{budget: {percent: 0}, minRetryRate: {count: 1, interval: 1s}}"
LARGE = "{budget: {percent: 0}, minRetryRate: {count: 100, interval: 1s}}"


def policy(constraint: str) -> str:
    return f"""
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackendTrafficPolicy
metadata: {{name: p}}
spec:
  targetRefs: [{{group: '', kind: Service, name: a}}]
  retryConstraint: {constraint}
"""


class OverloadedBackend:
    """A backend that answers 500 to the first attempts together, and holds retries."""

    def __init__(self) -> None:
        self.attempts = 0
        self._first, self.released = asyncio.Event(), asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            self.attempts += 1
            if self.attempts == CLIENTS:
                self._first.set()
            is_first = self.attempts <= CLIENTS
            await (self._first if is_first else self.released).wait()
            status = "500 Internal Server Error" if is_first else "200 OK"
            writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(url) as answer:
        return answer.status


@pytest.mark.process
@pytest.mark.parametrize(
    ("constraint", "retries"),
    [
        pytest.param(SMALLEST, 1, id="one"),
        pytest.param(LARGE, CLIENTS, id="rate above the number of clients"),
        pytest.param("", CLIENTS, id="no policy"),
    ],
)
async def test_envoy_retries_as_many_requests_as_the_budget_permits(
    constraint: str, retries: int, tmp_path: Path
) -> None:
    """Clients whose request is not repeated get the response of the backend, and not the 503 of
    RetryConstraint."""
    backend = OverloadedBackend()
    async with listening(backend.answer) as endpoint:
        objects = [CLASS, service("a", endpoint), route(RULE)]
        objects += [policy(constraint)] if constraint else []
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            serving_objects(with_envoy, tmp_path, *objects) as proxy,
            aiohttp.ClientSession(connector=connector) as session,
            limit(),
        ):
            url = f"http://{proxy.address}:{PORT}/"
            clients = [asyncio.create_task(_status(session, url)) for _ in range(CLIENTS)]
            early = asyncio.as_completed(clients)
            for _ in range(CLIENTS - retries):
                assert await next(early) == 500
            await until(lambda: backend.attempts == CLIENTS + retries)
            backend.released.set()
            statuses = sorted(await asyncio.gather(*clients))
    assert statuses == [200] * retries + [500] * (CLIENTS - retries)
    assert backend.attempts == CLIENTS + retries
