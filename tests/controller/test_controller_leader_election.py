"""Several controllers over one API server: one acts, and another follows it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakes import patience
from fakes.inprocess import Server
from fakes.replica import Replica
from gatehouse.apis import resources
from gatehouse.controller.leader_election import LeadershipLostError, Lease
from gatehouse.standalone.state_directory import State

LEASE = Lease("default", "controller")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    api_server = Server(State(tmp_path / "s"))
    async with api_server.running():
        yield api_server


async def test_standby_becomes_leader_when_the_leader_stops(server: Server) -> None:
    first = Replica(server, lease=LEASE)
    await first.until_ready()
    await _until_leading(first)
    second = Replica(server, lease=LEASE)
    await second.until_ready()
    assert (await second.get("/livez"))[0] == 200
    assert "gatehouse_controller_leader 1.0" in (await first.get("/metrics"))[1]
    assert "gatehouse_controller_leader 0.0" in (await second.get("/metrics"))[1]
    await first.stop()
    await _until_leading(second)
    await second.stop()


async def _until_leading(replica: Replica) -> None:
    async with patience.limit():
        while "gatehouse_controller_leader 1.0" not in (await replica.get("/metrics"))[1]:
            await asyncio.sleep(0.05)


async def test_controller_exits_when_the_lease_is_lost(server: Server) -> None:
    replica = Replica(server, lease=LEASE)
    await replica.until_ready()
    await _until_leading(replica)
    async with server.client() as client:
        lease = await client.get(resources.LEASES, LEASE.name, LEASE.namespace)
        taken = {**lease["spec"], "holderIdentity": "somebody else"}
        await client.update(resources.LEASES, {**lease, "spec": taken})
    await asyncio.wait([replica.task], timeout=patience.SECONDS)
    error = replica.task.exception()
    assert isinstance(error, BaseExceptionGroup)
    assert error.split(LeadershipLostError)[0] is not None
    with pytest.raises(aiohttp.ClientError):
        await replica.get("/livez")
