"""Dispatch policies, flow schemas and health, counted exactly with two workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cryptography import x509

from fakes import kube_upstream, patience
from fakes.kube_serving import ALL, EVERYTHING, HOST, ProxyResponse, World, world
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL

pytestmark = pytest.mark.process


@pytest_asyncio.fixture
async def two() -> AsyncIterator[World]:
    async with world(workers=2) as clients:
        yield clients


LONG_RUNNING = (
    "/api/v1/pods?watch=true",
    "/api/v1/namespaces/n/pods/p/log?follow=true",
    "/api/v1/namespaces/n/pods/p/exec?command=id",
    "/api/v1/namespaces/n/services/s/proxy/path",
    "/debug/pprof/heap",
)


def rule(**fields: ir.Names) -> ir.DispatchRule:
    values = {
        name: getattr(EVERYTHING, name) for name in ir.DispatchRule.__struct_fields__
    } | fields
    return ir.DispatchRule(**values)


async def spread(two: World, count: int, target: str, clients: int = 12) -> list[ProxyResponse]:
    """Send so many concurrent requests, on separate connections that both workers have."""
    alice = two.client("alice")
    connections = [await two.connect(alice) for _ in range(clients)]

    async def some(number: int) -> list[ProxyResponse]:
        return [await connections[number].ask(target) for _ in range(count // clients)]

    return [
        response
        for responses in await asyncio.gather(*map(some, range(clients)))
        for response in responses
    ]


def limited(name: str, limit: ir.InFlight | ir.TokenBucket) -> dict[str, object]:
    return {"schemas": (ir.FlowSchema(name, limit),)}


async def test_in_flight_limit_is_exact(two: World) -> None:
    policy = ir.DispatchPolicy((EVERYTHING,), schema='few, and "odd"')
    await two.serve(two.cluster(policy, **limited('few, and "odd"', ir.InFlight(5))))
    alice = two.client("alice")
    for _ in range(3):
        two.upstream.busiest = 0
        connections = [await two.connect(alice) for _ in range(30)]
        asking = [asyncio.create_task(connection.ask("/slow")) for connection in connections]
        async with patience.limit():
            while two.upstream.busy < 5 or sum(request.done() for request in asking) < 25:
                await patience.pause()
        # Long-running requests are not counted, and continue.
        watch = await two.connect(alice)
        watch.send("/api/v1/pods?watch=true", "GET")
        assert (await watch.head())[0] == 200
        watch.close()
        two.upstream.release()
        responses = [await request for request in asking]
        assert Counter(response.status for response in responses) == {200: 5, 429: 25}
        assert two.upstream.busiest == 5
        refused = next(response for response in responses if response.status == 429)
        assert refused.headers["retry-after"] == "1"
        assert refused.document["reason"] == "TooManyRequests"
        assert refused.document["details"] == {"retryAfterSeconds": 1}
        assert refused.document["message"] == (
            f'too many requests for cluster({HOST}), limited by flowControl(name=few, and "odd",'
            "type=MaxRequestsInflight,size=5)"
        )
        for connection in connections:
            connection.close()


async def test_in_flight_limit_of_zero_rejects_every_request(two: World) -> None:
    policy = ir.DispatchPolicy((EVERYTHING,), schema="none")
    await two.serve(two.cluster(policy, **limited("none", ir.InFlight(0))))
    responses = await spread(two, 24, "/api/v1/pods")
    assert {response.status for response in responses} == {429}
    events = await two.ask(two.client("alice"), "/api/v1/namespaces/n/events")
    assert (events.status, "retry-after" in events.headers) == (429, False)
    events = await two.ask(two.client("alice"), "/apis/events.k8s.io/v1/events")
    assert (events.status, "retry-after" in events.headers) == (429, False)
    for target in LONG_RUNNING:
        assert (await two.ask(two.client("alice"), target)).status == 429, target
    command = await two.connect(two.client("alice"))
    upgrade = (("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"))
    command.send("/api/v1/namespaces/n/pods/p/exec?command=id", "POST", *upgrade)
    assert (await command.head())[0] == 429
    command.close()
    assert two.upstream.seen == []


async def test_token_bucket_is_shared_by_workers_and_policies(two: World) -> None:
    pods = ir.DispatchPolicy((rule(resources=ir.Names(("pods",)), paths=ir.NONE),), schema="s")
    rest = ir.DispatchPolicy((EVERYTHING,), schema="s", logged=True)
    limits = limited("s", ir.TokenBucket(1, 20))
    await two.serve(two.cluster(pods, rest, **limits))
    responses = [*await spread(two, 24, "/api/v1/pods"), *await spread(two, 24, "/version")]
    passed = sum(response.status == 200 for response in responses)
    assert 20 <= passed <= 23
    refused = next(response for response in responses if response.status == 429)
    assert refused.headers["retry-after"] == "1"
    assert refused.document["message"].endswith("name=s,type=TokenBucket,qps=1,burst=20)")
    events = await two.ask(two.client("alice"), "/api/v1/events")
    assert (events.status, "retry-after" in events.headers) == (429, False)
    # Another policy does not get another token bucket.
    changed = await two.serve(two.cluster(rest, **limits))
    assert f"flow/{HOST}/s" not in {name for _, name in changed}
    assert {response.status for response in await spread(two, 12, "/version")} <= {429, 200}
    assert sum(response.status == 200 for response in await spread(two, 24, "/version")) <= 3


async def test_policies_are_evaluated_in_order_and_unmatched_requests_rejected(two: World) -> None:
    policies = [
        ir.DispatchPolicy(
            (rule(users=ir.Names(prefixes=("bob",)), verbs=ir.Names(("get",))),), schema="a"
        ),
        ir.DispatchPolicy(
            (
                rule(
                    user_groups=ir.Names(("dev",)),
                    resources=ir.Names(("pods",), (), ("log",)),
                    paths=ir.NONE,
                ),
            ),
            schema="b",
        ),
        ir.DispatchPolicy(
            (
                rule(
                    user_groups=ir.Names(("dev", "x"), others=True),
                    names=ir.Names(("p",), others=True),
                ),
            ),
            schema="c",
        ),
    ]
    schemas = tuple(ir.FlowSchema(name, ir.InFlight(0)) for name in ("a", "b", "c"))
    await two.serve(two.cluster(*policies, schemas=schemas))

    async def held(user: str, groups: list[str], target: str, method: str = "GET") -> str:
        response = await two.ask(two.client(user, *groups), target, method)
        if response.status == 403:
            assert response.document["reason"] == "Forbidden"
            return ""
        assert response.status == 429
        return str(response.document["message"].partition("name=")[2][:1])

    pods = "/api/v1/namespaces/n/pods"
    assert await held("bobby", [], f"{pods}/p") == "a"
    assert await held("bobby", [], f"{pods}/q", "DELETE") == "c"
    assert await held("bobby", [], f"{pods}/p", "DELETE") == ""
    assert await held("eve", ["dev"], pods) == "b"
    assert await held("eve", ["dev"], "/api/v1/nodes") == ""
    assert await held("eve", ["dev"], "/version") == ""
    assert await held("eve", ["ops"], "/version") == "c"
    assert await held("eve", ["x", "y"], "/version") == ""
    assert await held("eve", [], f"{pods}?fieldSelector=metadata.name%3Dp") == ""
    assert await held("eve", [], f"{pods}?fieldSelector=metadata.name!%3Dp") == "c"


async def test_denied_cluster_rejects_all_requests(two: World) -> None:
    await two.serve(two.cluster(denied=True))
    response = await two.ask(two.client("alice"))
    assert (response.status, response.document["reason"]) == (429, "TooManyRequests")
    assert HOST in response.document["message"]
    await two.serve(two.cluster())

    async def served() -> bool:
        return (await two.ask(two.client("alice"))).status == 200

    await two.served.until(served)


@pytest.mark.long
async def test_requests_go_to_ready_servers_of_their_policy(two: World) -> None:
    context = two.servers.server("kube", x509.DNSName("kube.test"))
    async with kube_upstream.serving("two", context) as second:
        servers = (
            ir.KubeApiServer("https://one", "127.0.0.1", two.upstream.port),
            ir.KubeApiServer("https://two", "127.0.0.1", second.port),
        )
        only = ir.DispatchPolicy(
            (rule(resources=ir.Names(("pods",)), paths=ir.NONE),), ("https://two",)
        )
        await two.serve(two.cluster(only, ALL, servers=servers))
        services = Counter(
            response.document["service"] for response in await spread(two, 48, "/version")
        )
        assert set(services) == {"one", "two"}
        services = Counter(
            response.document["service"] for response in await spread(two, 24, "/api/v1/pods")
        )
        assert set(services) == {"two"}
        second.ready = False

        async def nobody() -> bool:
            return (await two.ask(two.client("alice"))).status == 503

        await two.served.until(nobody)
        away = await two.ask(two.client("alice"))
        assert away.headers["retry-after"] == "60"
        assert away.document["reason"] == "ServiceUnavailable"
        services = Counter(
            response.document["service"] for response in await spread(two, 24, "/version")
        )
        assert set(services) == {"one"}
        second.ready = True

        async def back() -> bool:
            return (await two.ask(two.client("alice"))).status == 200

        await two.served.until(back)
        await two.serve(two.cluster(ALL, servers=()))

        async def gone() -> bool:
            return (await two.ask(two.client("alice"))).status == 503

        await two.served.until(gone)


async def test_many_clients_share_few_server_connections(two: World) -> None:
    await two.serve(two.cluster())
    alice = two.client("alice")
    watches = [await two.connect(alice) for _ in range(60)]
    for watch in watches:
        watch.send("/api/v1/pods?watch=true", "GET")
        assert (await watch.head())[0] == 200
    await spread(two, 60, "/api/v1/pods", clients=30)
    assert two.upstream.watches == 60
    assert two.upstream.connections == {"h2": 2, "http/1.1": 0}


async def test_added_token_bucket_applies_to_existing_connections(two: World) -> None:
    await two.serve(two.cluster(ir.DispatchPolicy((EVERYTHING,))))
    connection = await two.connect(two.client("alice"))
    assert {(await connection.ask("/version")).status for _ in range(6)} == {200}
    policy = ir.DispatchPolicy((EVERYTHING,), schema="few")
    changed = await two.serve(two.cluster(policy, **limited("few", ir.TokenBucket(1, 2))))
    assert not [key for key in changed if key[0] == LISTENER_TYPE_URL]
    statuses = Counter([(await connection.ask("/version")).status for _ in range(12)])
    assert statuses[200] >= 2
    assert statuses[429] >= 6
    await two.serve(two.cluster(ir.DispatchPolicy((EVERYTHING,))))
    assert {(await connection.ask("/version")).status for _ in range(6)} == {200}
    connection.close()


async def test_clients_share_one_connection_per_worker(two: World) -> None:
    await two.serve(two.cluster())
    assert {response.status for response in await spread(two, 240, "/api/v1/pods", clients=60)} == {
        200
    }
    assert two.upstream.connections == {"h2": 2, "http/1.1": 0}
