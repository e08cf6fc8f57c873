"""Counts of limits survive changes of limits, tokens and servers, with a real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes import patience, upstream_worlds
from fakes.kube_serving import EVERYTHING, HOST, Connection, World, world
from gatehouse.compiler.frontends.inputs import replicas_key
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    RUNTIME_TYPE_URL,
    SCOPE_TYPE_URL,
    SECRET_TYPE_URL,
)

pytestmark = pytest.mark.process

POLICY = ir.DispatchPolicy((EVERYTHING,), schema="few")


@pytest_asyncio.fixture
async def two() -> AsyncIterator[World]:
    async with world(workers=2) as running:
        yield running


def cluster(two: World, limit: ir.InFlight | ir.TokenBucket, **more: object) -> ir.ApiCluster:
    return two.cluster(POLICY, schemas=(ir.FlowSchema("few", limit),), **more)


def token(value: str) -> tuple[ir_gateway.SecretFile, ...]:
    secret = ir_gateway.SecretBytes(value.encode())
    return (ir_gateway.SecretFile("t", secret),)


class Slow:
    """Requests that the server does not answer before it is released."""

    def __init__(self, two: World) -> None:
        self.two = two
        self.statuses: list[asyncio.Task[int]] = []

    async def send(self, count: int) -> None:
        """Send so many more, one by one, each on a connection of its own."""
        alice = self.two.client("alice")
        for _ in range(count):
            connection = await self.two.connect(alice)
            self.statuses.append(asyncio.create_task(self._status(connection)))
            sent = len(self.statuses)
            async with patience.limit():
                while self.busy + self.rejected < sent:
                    await patience.pause()

    async def _status(self, connection: Connection) -> int:
        with contextlib.closing(connection):
            return (await connection.ask("/slow")).status

    @property
    def busy(self) -> int:
        """Requests at the server."""
        return self.two.upstream.busy

    @property
    def rejected(self) -> int:
        """Requests that the limit rejected."""
        return sum(status.done() and status.result() == 429 for status in self.statuses)

    async def finish(self) -> list[int]:
        """Let the server answer. Return all statuses."""
        self.two.upstream.release()
        return await asyncio.gather(*self.statuses)


async def test_changed_limit_keeps_the_number_of_requests_in_flight(two: World) -> None:
    await two.serve(cluster(two, ir.InFlight(5)))
    slow = Slow(two)
    await slow.send(7)
    assert (slow.busy, slow.rejected) == (5, 2)
    changed = await two.serve(cluster(two, ir.InFlight(6)))
    assert {type_url for type_url, _ in changed} - {SECRET_TYPE_URL} == {
        RUNTIME_TYPE_URL,
        SCOPE_TYPE_URL,
    }
    await slow.send(3)
    assert (slow.busy, slow.rejected) == (6, 4)
    # A lower limit ends no request, and none passes before the number is below the limit.
    await two.serve(cluster(two, ir.InFlight(3)))
    await slow.send(3)
    assert (slow.busy, slow.rejected) == (6, 7)
    response = await two.ask(two.client("alice"), "/slow")
    assert response.document["message"].endswith("type=MaxRequestsInflight,size=3)")
    statuses = await slow.finish()
    assert (statuses.count(200), statuses.count(429)) == (6, 7)
    slow = Slow(two)
    two.upstream.busiest = 0
    await slow.send(6)
    assert (slow.busy, slow.rejected) == (3, 3)
    await slow.finish()
    await two.serve(cluster(two, ir.InFlight(0)))
    assert (await two.ask(two.client("alice"))).status == 429


async def test_renewed_token_keeps_the_number_of_requests_in_flight(two: World) -> None:
    limited = cluster(two, ir.InFlight(2), token="t")
    await two.serve(limited, secrets=token("old"))
    slow = Slow(two)
    await slow.send(3)
    assert (slow.busy, slow.rejected) == (2, 1)
    changed = await two.serve(limited, secrets=token("new"))
    assert CLUSTER_TYPE_URL not in {type_url for type_url, _ in changed}
    await slow.send(2)
    assert (slow.busy, slow.rejected) == (2, 3)
    await slow.finish()

    async def renewed() -> bool:
        response = await two.ask(two.client("alice"))
        return response.values("authorization") == ["Bearer new"]

    await two.served.until(renewed)


async def test_renewed_token_keeps_the_tokens_of_a_bucket(two: World) -> None:
    limited = cluster(two, ir.TokenBucket(1, 8), token="t")
    await two.serve(limited, secrets=token("old"))
    alice = two.client("alice")
    statuses = [(await two.ask(alice)).status for _ in range(12)]
    assert statuses.count(429) >= 1
    await two.serve(limited, secrets=token("new"))
    statuses = [(await two.ask(alice)).status for _ in range(8)]
    assert statuses.count(200) <= 4, statuses


async def test_data_planes_that_join_and_leave_keep_the_number_in_flight(two: World) -> None:
    compiled = upstream_worlds.World()
    compiled.gateway()
    few = {
        "name": "few", "strategy": "globalAllocate",
        "maxRequestsInflight": {"max": 1}, "globalMaxRequestsInflight": {"max": 4},
    }  # fmt: skip
    compiled.cluster(
        HOST,
        annotations={"proxy.kubegateway.io/feature-gates": "GlobalRateLimiter=true"},
        flowControl={"flowControlSchemas": [few]},
        dispatchPolicies=[{"rules": [upstream_worlds.EVERYTHING], "flowControlSchemaName": "few"}],
    )

    async def connected(*data_planes: str) -> None:
        """Serve the share of one of these data planes."""
        replicas = replicas_key(upstream_worlds.GATEWAY)
        compiled.engine.commit({replicas: data_planes})
        await two.serve(two.cluster(POLICY, schemas=compiled.served()[HOST].schemas))

    await connected("p-1")
    slow = Slow(two)
    await slow.send(3)
    assert (slow.busy, slow.rejected) == (3, 0)
    # The share is 2 now, and 3 requests are in flight.
    await connected("p-1", "p-2")
    await slow.send(2)
    assert (slow.busy, slow.rejected) == (3, 2)
    await connected("p-1")
    await slow.send(2)
    assert (slow.busy, slow.rejected) == (4, 3)
    await slow.finish()


async def test_new_schema_and_cluster_do_not_disturb_counts(two: World) -> None:
    first = cluster(two, ir.InFlight(2))
    await two.serve(first)
    slow = Slow(two)
    await slow.send(3)
    more = two.cluster(
        POLICY,
        schemas=(ir.FlowSchema("few", ir.InFlight(2)), ir.FlowSchema("more", ir.InFlight(9))),
    )
    other = two.cluster(name="b.kube.test", hosts=("b.kube.test",))
    await two.serve(more, other)
    await slow.send(2)
    assert (slow.busy, slow.rejected) == (2, 3)
    await slow.finish()
    await two.serve(first)
    assert (await two.ask(two.client("alice"), host=HOST)).status == 200
