"""Several controllers over one API server: one acts, and another follows it at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from inprocess import Server

from gatehouse.apis import resources
from gatehouse.controller import run as controllers
from gatehouse.controller.leadership import LeadershipLostError, Lease
from gatehouse.standalone import pki
from gatehouse.standalone.state import State

LEASE = Lease("default", "controller")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Replica:
    """A controller in this process."""

    def __init__(self, server: Server) -> None:
        agents = free_port()
        self.health = f"127.0.0.1:{free_port()}"
        self._stop = asyncio.Event()
        pair = server.state.pki.leaf(pki.CHANNEL)
        self._options = controllers.Options(
            kubeconfig=server.state.kubeconfig,
            agent_bind=f"127.0.0.1:{agents}",
            agent_advertise=f"127.0.0.1:{agents}",
            tls_cert=pair.cert,
            tls_key=pair.key,
            ca=server.state.pki.ca().cert,
            lease=LEASE,
            health=self.health,
        )
        self.task = asyncio.create_task(controllers.run(self._options, self._stop))

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.wait([self.task])

    async def asked(self, path: str) -> tuple[int, str]:
        url = f"http://{self.health}{path}"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            return response.status, await response.text()

    async def until_ready(self) -> None:
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    if (await self.asked("/readyz"))[0] == 200:
                        return
                assert not self.task.done(), self.task
                await asyncio.sleep(0.05)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    found = Server(State(tmp_path / "s"))
    async with found.running():
        yield found


async def test_the_next_one_takes_over_when_the_leader_ends(server: Server) -> None:
    first = Replica(server)
    await first.until_ready()
    second = Replica(server)
    async with asyncio.timeout(20):
        while "another controller leads" not in await _reason(second):
            await asyncio.sleep(0.05)
    assert (await second.asked("/livez"))[0] == 200
    assert "gatehouse_controller_leading 1.0" in (await first.asked("/metrics"))[1]
    assert "gatehouse_controller_leading 0.0" in (await second.asked("/metrics"))[1]
    await first.stop()
    await second.until_ready()
    assert "gatehouse_controller_leading 1.0" in (await second.asked("/metrics"))[1]
    await second.stop()


async def _reason(replica: Replica) -> str:
    with contextlib.suppress(aiohttp.ClientError):
        return (await replica.asked("/readyz"))[1]
    return ""


async def test_one_that_lost_the_lease_ends(server: Server) -> None:
    replica = Replica(server)
    await replica.until_ready()
    async with server.client() as client:
        lease = await client.get(resources.LEASES, LEASE.name, LEASE.namespace)
        taken = {**lease["spec"], "holderIdentity": "somebody else"}
        await client.update(resources.LEASES, {**lease, "spec": taken})
    await asyncio.wait([replica.task], timeout=20)
    error = replica.task.exception()
    assert isinstance(error, BaseExceptionGroup)
    assert error.split(LeadershipLostError)[0] is not None
    with pytest.raises(aiohttp.ClientError):
        await replica.asked("/livez")
