"""An agent behind an unreliable network: it continues downloads where they stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane, answering
from fakes.agent_network import fetched, noise, options
from fakes.faulty_proxy import FaultyProxy, cutting_proxy
from fakes.load import Load
from fakes.loopback import free_port
from fakes.nginx_agent import get, master_pid, running
from gatehouse.agent.nginx import main, mpi_client
from gatehouse.agent.nginx.file_fetcher import MAX_SMALL_IN_FLIGHT, SMALL_BYTES
from gatehouse.agent.nginx.mpi_client import MPIClient
from gatehouse.dataplane.file_set import FileSet
from gatehouse.transports.mpi.services import MpiServices

__all__ = ["fetched"]

pytestmark = pytest.mark.process


@pytest.fixture
async def network(control_plane: ControlPlane) -> AsyncIterator[FaultyProxy]:
    async with cutting_proxy(control_plane.port) as proxy:
        yield proxy


KINDS = pytest.mark.parametrize(
    "sizes",
    [[4_000] * 200, [30_000] * 40, [3 << 20]],
    ids=["GetFiles", "GetFile", "GetFileStream"],
)


@KINDS
async def test_fetch_continues_after_connection_is_cut(
    control_plane: ControlPlane,
    network: FaultyProxy,
    fetched: Counter[str],
    tmp_path: Path,
    sizes: list[int],
) -> None:
    port = free_port()
    async with running(options(control_plane, network, tmp_path)):
        await control_plane.programmed(answering(port, "one"))
        master = master_pid(tmp_path)
        async with Load(port) as load:
            await load.flows()
            fetched.clear()
            network.cut_after = sum(sizes) // 2
            before = network.connections
            await control_plane.programmed(answering(port, "two", *noise(sizes)))
            assert network.connections > before
            await load.flows()
        assert not load.failed
        assert await get(port) == (200, "two")
        assert master_pid(tmp_path) == master
        if len(sizes) > 1:
            # Only files in flight when the connection was cut are requested twice.
            in_flight = MAX_SMALL_IN_FLIGHT // 4 if sizes[0] <= SMALL_BYTES else 8
            assert fetched.total() <= len(sizes) + 2 + in_flight
            assert max(fetched.values()) == 2


async def test_fetch_continues_after_control_plane_outage(
    control_plane: ControlPlane, network: FaultyProxy, fetched: Counter[str], tmp_path: Path
) -> None:
    port, files = free_port(), noise([30_000] * 40)
    async with running(options(control_plane, network, tmp_path)):
        await control_plane.programmed(answering(port, "one"))
        async with Load(port) as load:
            network.rate = 300_000
            network.stall_after = 600_000
            control_plane.server.publish(GATEWAY, answering(port, "two", *files))
            await network.stalled()
            network.stall()
            network.cut()
            await control_plane.until(lambda report: not report.instances)
            await load.flows()
            fetched.clear()
            network.rate = 0
            network.recover()
            network.cut()
            await control_plane.programmed(answering(port, "two", *files))
            assert fetched.total() < 40
            await load.flows()
        assert not load.failed


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[MPIClient]:
    """Return the channels that the agent has closed."""
    channels: list[MPIClient] = []
    close = MPIClient.close

    async def closing(self: MPIClient) -> None:
        await close(self)
        channels.append(self)

    monkeypatch.setattr(MPIClient, "close", closing)
    return channels


@KINDS
async def test_fetch_continues_after_its_channel_is_closed(
    control_plane: ControlPlane,
    network: FaultyProxy,
    closed: list[MPIClient],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sizes: list[int],
) -> None:
    # The second attempt at a file begins earlier, on the channel of an unanswered registration.
    monkeypatch.setattr(mpi_client, "UNARY_SECONDS", 2.0)
    port = free_port()
    newest = answering(port, "two", *noise(sizes))
    async with running(options(control_plane, network, tmp_path)):
        await control_plane.programmed(answering(port, "one"))
        closed.clear()
        network.stall_after = sum(sizes) // 2
        control_plane.server.publish(GATEWAY, newest)
        await network.stalled()
        network.stall()
        network.cut()
        await patience.until(lambda: len(closed) == 2)
        network.recover()
        await control_plane.programmed(newest)
        assert await get(port) == (200, "two")


async def test_newest_version_follows_a_slow_apply(
    control_plane: ControlPlane, network: FaultyProxy, tmp_path: Path
) -> None:
    port = free_port()
    reports: list[FileSet] = []
    async with running(options(control_plane, network, tmp_path)):
        await control_plane.programmed(answering(port, "one"))
        async with Load(port) as load:
            network.rate = 100_000
            slow = answering(port, "slow", *noise([30_000] * 10))
            control_plane.server.publish(GATEWAY, slow)
            for number in range(20):
                reports.append(answering(port, f"v{number}"))
                control_plane.server.publish(GATEWAY, reports[-1])
            await control_plane.programmed(reports[-1])
            await load.flows()
            assert set(load.answered) <= {"one", "slow", "v19"}
        assert not load.failed


async def test_files_are_fetched_one_by_one_from_other_control_planes(
    fetched: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These have no RPC for several files, such as control planes of earlier versions."""
    handlers, port = MpiServices.handlers, free_port()
    monkeypatch.setattr(MpiServices, "handlers", lambda services: handlers(services)[:2])
    files = noise([100] * 100)
    async with ControlPlane(tmp_path / "other") as plane:
        agent = main.options_from_environment(plane.environment(tmp_path))
        async with running(agent):
            await plane.programmed(answering(port, "one", *files))
            assert await get(port) == (200, "one")
    assert [fetched[file.path] for file in files] == [1] * 100
