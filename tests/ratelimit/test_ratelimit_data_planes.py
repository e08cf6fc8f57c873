"""Shared limits of TrafficPolicies, which several data planes count by one service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from differential.proxies import PORT, with_envoy
from fakes import patience
from fakes.envoy_serving import Answer, listening
from fakes.ratelimit_process import RateLimitProcess, Redis
from fakes.specified_objects import (
    CLASS,
    compiled_gateway,
    route,
    service,
    serving_configuration,
)

pytestmark = pytest.mark.process

RULES = "- backendRefs: [{name: a, port: 80}]"


def policy(fields: str, name: str = "p") -> str:
    return f"""
apiVersion: gatehouse.dev/v1alpha1
kind: TrafficPolicy
metadata: {{name: {name}}}
spec:
  targetRefs: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}}]
  rateLimit: {{{fields}}}
"""


def shared(*rules: str, **more: str) -> str:
    """Return a policy with shared rules."""
    fields = [f"shared: {{rules: [{', '.join(f'{{{rule}}}' for rule in rules)}]}}"]
    return policy(", ".join([*fields, *(f"{name}: {value}" for name, value in more.items())]))


FEW = "requests: 1, per: Minute, burst: 2"
"""Three requests pass, and the next one a minute later."""


def answering() -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    return answer


@contextlib.asynccontextmanager
async def data_planes(
    count: int, counter: str, directory: Path, *policies: str
) -> AsyncIterator[list[str]]:
    """Run so many data planes that ask a rate limit service. Yield their addresses."""
    async with contextlib.AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(listening(answering()))
        gateway = compiled_gateway(CLASS, service("a", endpoint), route(RULES), *policies)
        gateway = msgspec.structs.replace(gateway, counter=counter)
        addresses = []
        for number in range(count):
            own = directory / f"plane{number}"
            own.mkdir()
            served = await stack.enter_async_context(
                serving_configuration(with_envoy, own, gateway)
            )
            addresses.append(served.address)
        yield addresses


async def status(address: str, lines: bytes = b"", target: bytes = b"/", body: bytes = b"") -> int:
    """Send a request with these header lines, and return the status."""
    reader, writer = await asyncio.open_connection(address, PORT)
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n%b%b\r\n%b"
        % (target, length, lines, body)
    )
    async with patience.limit():
        head = await reader.readline()
    writer.close()
    return int(head.split()[1])


async def test_data_planes_together_let_as_many_requests_pass_as_the_rule_says(
    counter: RateLimitProcess, tmp_path: Path
) -> None:
    rule = shared(FEW, statusCode="429")
    async with data_planes(2, counter.address, tmp_path, rule) as (first, second):
        statuses = [await status(one, body=b"x" * 100) for one in (first, second) * 4]
    assert statuses == [200] * 3 + [429] * 5


async def test_each_value_of_the_key_has_a_bucket_whose_name_does_not_contain_it(
    counter: RateLimitProcess, redis: Redis, tmp_path: Path
) -> None:
    key = "key: {type: Header, name: X-User}"
    async with data_planes(2, counter.address, tmp_path, shared(f"{FEW}, {key}")) as addresses:
        for user in (b"secret", b"other", b"long" * 10_000):
            lines = b"X-User: %b\r\n" % user
            statuses = [await status(one, lines) for one in addresses * 2]
            assert statuses == [200, 200, 200, 503], user[:10]
        assert [await status(one) for one in addresses * 3] == [200] * 6
    keys = redis.send("KEYS", "*")
    assert keys.startswith("*3\r\n")
    assert keys.count("gatehouse:gatehouse:TrafficPolicy%2Fns%2Fp:0:") == 3
    assert "secret" not in keys
    assert len(keys) < 1000


@pytest.mark.parametrize(
    ("key", "lines", "target"),
    [
        ("{type: Header, name: X-User}", b"X-User: \xff\r\n", b"/"),
        ("{type: QueryParameter, name: user}", b"", b"/?user=%FF"),
    ],
    ids=["header", "query parameter"],
)
async def test_value_that_is_no_text_is_counted(
    counter: RateLimitProcess, tmp_path: Path, key: str, lines: bytes, target: bytes
) -> None:
    rule = shared(f"{FEW}, key: {key}", FEW)
    async with data_planes(1, counter.address, tmp_path, rule) as (address,):
        statuses = [await status(address, lines, target) for _ in range(5)]
    assert statuses == [200] * 3 + [503] * 2


async def test_requests_with_long_headers_are_counted_together(
    counter: RateLimitProcess, tmp_path: Path
) -> None:
    key = "key: {type: Header, name: X-User}"
    rule = shared(*[f"{FEW}, {key}"] * 16)
    async with data_planes(1, counter.address, tmp_path, rule) as (address,):
        for user in (b"a" * 31_000, b"b" * 31_000):
            lines = b"X-User: %b\r\n" % user
            statuses = [await status(address, lines) for _ in range(4)]
            assert statuses == [200] * 3 + [503]
        long = [b"X-User: %b\r\n" % (name * 120_000) for name in (b"a", b"b", b"c", b"d")]
        assert [await status(address, lines) for lines in long] == [200] * 3 + [503]


async def test_requests_pass_in_a_dry_run_and_without_the_service(
    counter: RateLimitProcess, redis: Redis, tmp_path: Path
) -> None:
    (tmp_path / "dry").mkdir()
    rule = shared(FEW, dryRun="true")
    async with data_planes(1, counter.address, tmp_path / "dry", rule) as (address,):
        assert [await status(address) for _ in range(5)] == [200] * 5
    assert "TrafficPolicy%2Fns%2Fp:0" in redis.send("KEYS", "*")
    redis.send("FLUSHALL")
    async with data_planes(1, counter.address, tmp_path, shared(FEW)) as (address,):
        assert [await status(address) for _ in range(4)] == [200] * 3 + [503]
        counter.kill()
        assert [await status(address) for _ in range(4)] == [200] * 4


async def test_data_plane_asks_only_about_requests_within_its_own_limit(
    counter: RateLimitProcess, tmp_path: Path
) -> None:
    local = "local: {rules: [{requests: 1, per: Minute}]}"
    rule = policy(f"{local}, shared: {{rules: [{{{FEW}}}]}}")
    async with data_planes(2, counter.address, tmp_path, rule) as (first, second):
        assert [await status(first) for _ in range(6)] == [200] + [503] * 5
        assert await status(second) == 200
