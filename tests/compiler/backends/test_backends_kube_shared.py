"""The rate limit service shared by data planes, as Envoy calls it before kube-apiservers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

from fakes.kube_serving import EVERYTHING, HOST, world
from gatehouse.compiler.ir import kube_apiserver as ir

pytestmark = pytest.mark.process

_CODES = rls_pb2.RateLimitResponse


class Counter(rls_pb2_grpc.RateLimitServiceServicer):
    """Permits so many requests, and records the descriptors."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.asked: list[dict[str, str]] = []

    async def ShouldRateLimit(self, request: Any, _: Any) -> Any:
        assert request.domain == "gatehouse"
        [descriptor] = request.descriptors
        self.asked.append({entry.key: entry.value for entry in descriptor.entries})
        self.left -= 1
        return _CODES(overall_code=_CODES.OK if self.left >= 0 else _CODES.OVER_LIMIT)


@contextlib.asynccontextmanager
async def counting(most: int) -> AsyncIterator[tuple[Counter, str, Any]]:
    server, counter = grpc.aio.server(), Counter(most)
    rls_pb2_grpc.add_RateLimitServiceServicer_to_server(counter, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield counter, f"127.0.0.1:{port}", server
    finally:
        await server.stop(0)


async def test_shared_limit_is_checked_after_local_limit() -> None:
    schemas = (
        ir.FlowSchema("own", ir.TokenBucket(1, 100)),
        ir.FlowSchema("s", ir.TokenBucket(1, 5), ir.TokenBucket(7, 9)),
    )
    pods = ir.DispatchRule(verbs=ir.ANY, groups=ir.ANY, resources=ir.Names(("pods",)))
    policies = (
        ir.DispatchPolicy((pods,), schema="s"),
        ir.DispatchPolicy((EVERYTHING,), schema="own"),
    )
    async with world() as one, counting(3) as (counter, where, server):
        await one.serve(one.cluster(*policies, schemas=schemas), counter=where)
        alice = one.client("alice")
        responses = [await one.ask(alice, "/api/v1/pods") for _ in range(9)]
        codes = [response.status for response in responses]
        # Three pass; the service rejects two; the rest exceeds the local token bucket.
        assert codes == [200] * 3 + [429] * 6
        assert 5 <= len(counter.asked) <= 6
        expected = {"cluster": HOST, "schema": "s", "rate": "7", "burst": "9"}
        assert all(limit == expected for limit in counter.asked)
        for response in responses[3:]:
            assert response.headers["retry-after"] == "1"
            assert response.document["reason"] == "TooManyRequests"
            assert "flowControl(name=s," in response.document["message"]
        assert (await one.ask(alice, "/version")).status == 200
        # Without a service only the limit of one data plane applies.
        await server.stop(0)
        own = ir.FlowSchema("s", ir.TokenBucket(1, 4), ir.TokenBucket(7, 9))
        await one.serve(one.cluster(*policies, schemas=(schemas[0], own)), counter=where)
        codes = [(await one.ask(alice, "/api/v1/pods")).status for _ in range(8)]
        assert codes.count(200) in (4, 5)
