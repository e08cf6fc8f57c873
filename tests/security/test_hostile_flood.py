"""A tenant that writes 10,000 objects, a quarter of them hostile, beside another tenant.

All objects are admitted by the API server of a whole installation, and their routes attach to the
Gateway of the other tenant. No process ends, the memory of each stays within a limit, and a
replaced data plane serves all good routes. No request of the other tenant's clients fails. Each
change of the other tenant, a new route, an edit or other endpoints, is served within five seconds
on a machine that does nothing else. During the flood on NGINX a change may wait for two reloads,
which read the files of all tenants.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fakes import good_tenant, hostile_flood
from fakes.durations import pace
from fakes.good_tenant import GoodTenant
from fakes.installation import BACKEND, REVISED, Installation, apply, traffic
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(1200)]

Object = dict[str, Any]
OBJECTS = 10_000
SEED = 30
SERVED_WITHIN_SECONDS = 5.0
LATE_SECONDS = 70.0
"""Limit that holds on a loaded machine as well. A replaced data plane took up to 54 s there."""
MEMORY_BYTES = {"apiserver": 512 << 20, "controller": 512 << 20, "node": 256 << 20}
"""Limits of the largest resident memory. With 10,205 objects, the API server took 226 MiB, the
controller 289 MiB and the node 66 MiB. The chart permits 1 GiB for the controller.
"""
DATA_PLANE_BYTES = 1 << 30
CHANGES = ("new route", "edited route", "moved endpoints")


async def replacement(client: kube.Client, tenant: GoodTenant) -> float:
    """Delete the Pod of the shared Gateway; return the seconds until a new one serves."""
    pods = (await client.list(resources.PODS, good_tenant.SHARED[0])).items
    assert len(pods) == 1
    started = time.monotonic()
    await client.delete(resources.PODS, pods[0]["metadata"]["name"], good_tenant.SHARED[0])

    async def replaced() -> bool:
        current = (await client.list(resources.PODS, good_tenant.SHARED[0])).items
        return [pod["metadata"]["uid"] for pod in current] not in (
            [],
            [pods[0]["metadata"]["uid"]],
        )

    await until(replaced)
    await until(tenant.serves_all)
    return time.monotonic() - started


@contextlib.asynccontextmanager
async def attacking(
    installation: Installation, client: kube.Client, gateway_class: str
) -> AsyncIterator[kube.Client]:
    await apply(client, hostile_flood.world(gateway_class, BACKEND))
    ca = await asyncio.to_thread((installation.state / "pki" / "ca.crt").read_bytes)
    async with hostile_flood.attacker(client, ca) as attacker:
        yield attacker


class Outcome(msgspec.Struct, frozen=True):
    """Measurements of an installation during and after a flood."""

    gateway_class: str
    sent: int
    hostile: int
    answers: dict[str, int]
    meanwhile: dict[str, list[float]]
    """Seconds until each change of the good tenant was served during the flood, by its kind."""
    afterwards: dict[str, list[float]]
    requests: dict[str, dict[str, int]]
    """Answers to the good tenant's clients until the Pod was deleted, by Gateway."""
    replaced: float
    """Seconds until a new data plane served all good routes."""
    ended: list[str]
    """Names of processes that ended before the data plane was replaced."""
    memory: dict[str, int]


async def flood(installation: Installation, gateway_class: str) -> Outcome:
    """Write the objects of the hostile tenant while the good one changes its routes."""
    hostile, count = hostile_flood.objects(OBJECTS + OBJECTS // 50, SEED)
    connector = aiohttp.TCPConnector(force_close=True)
    timeout = aiohttp.ClientTimeout(total=2)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(installation.client())
        await stack.enter_async_context(echo.serve_echo({BACKEND: "app", REVISED: "revised"}))
        session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        await stack.enter_async_context(session)
        attacker = await stack.enter_async_context(attacking(installation, client, gateway_class))
        tenant = GoodTenant(client, session)
        await tenant.started()
        await tenant.change()
        tenant.seconds.clear()
        before = hostile_flood.processes(installation)
        async with contextlib.AsyncExitStack() as clients:
            requests = {
                "/".join(key): await clients.enter_async_context(
                    traffic(address, host="steady.good.example", pause=0.1)
                )
                for key, address in tenant.addresses.items()
            }
            writing = asyncio.create_task(hostile_flood.write(attacker, hostile))
            while not writing.done():
                await tenant.change()
                await pace(1)
            meanwhile, tenant.seconds = tenant.seconds, {}
            for _ in range(5):
                await tenant.change()
        return Outcome(
            gateway_class=gateway_class,
            sent=len(hostile),
            hostile=count,
            answers=dict(await writing),
            meanwhile=meanwhile,
            afterwards=tenant.seconds,
            requests={gateway: dict(answers) for gateway, answers in requests.items()},
            ended=[name for name, one in before.items() if not one.record.alive()],
            memory={
                name: one.resident_bytes() for name, one in before.items() if one.record.alive()
            },
            replaced=await replacement(client, tenant),
        )


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def outcome(request: pytest.FixtureRequest) -> Iterator[Outcome]:
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        installation = Installation(Path(directory))
        installation.start()
        try:
            result = asyncio.run(flood(installation, request.param))
            result.ended.extend(good_tenant.failures(installation))
            print(msgspec.json.format(msgspec.json.encode(result)).decode())
            yield result
        finally:
            installation.stop()


def test_hostile_objects_are_accepted_by_the_api_server(outcome: Outcome) -> None:
    assert outcome.answers["accepted"] >= OBJECTS, outcome.answers
    assert not [answer for answer in outcome.answers if answer.startswith("403 ")]
    assert outcome.hostile > OBJECTS // 10


def test_no_process_ends_during_the_flood(outcome: Outcome) -> None:
    assert outcome.ended == []


def test_memory_of_each_process_stays_within_its_limit(outcome: Outcome) -> None:
    for name, resident in outcome.memory.items():
        assert resident < MEMORY_BYTES.get(name, DATA_PLANE_BYTES), name


@pytest.mark.timing
def test_replaced_data_plane_serves_all_good_routes(outcome: Outcome) -> None:
    assert outcome.replaced < LATE_SECONDS


def test_no_request_of_the_good_tenant_fails(outcome: Outcome) -> None:
    for gateway, answers in outcome.requests.items():
        assert set(answers) == {"200"}, (gateway, answers)
        assert answers["200"] > 100


@pytest.mark.timing
@pytest.mark.parametrize("kind", CHANGES)
def test_changes_are_served_during_the_flood(outcome: Outcome, kind: str) -> None:
    assert max(outcome.meanwhile[kind]) < SERVED_WITHIN_SECONDS


@pytest.mark.timing
@pytest.mark.parametrize("kind", CHANGES)
def test_changes_are_served_in_time_after_the_flood(outcome: Outcome, kind: str) -> None:
    assert max(outcome.afterwards[kind]) < SERVED_WITHIN_SECONDS
