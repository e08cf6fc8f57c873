"""An agent that is killed after each step of an apply: no request fails, no file is left over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakes.agent_control_plane import GATEWAY, ControlPlane, answering
from fakes.crashing_agent import CrashingAgent, dying_agent
from fakes.load import Load
from fakes.nginx_agent import get, until
from gatehouse.agent.nginx.apply_steps import ApplyStep
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.standalone.free_ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.long]

RELOAD = [
    ApplyStep.FETCHED,
    ApplyStep.STAGED,
    ApplyStep.TESTED,
    ApplyStep.ACCOMPANIED,
    ApplyStep.SWITCHED,
    ApplyStep.RELOADED,
    ApplyStep.CONFIRMED,
    ApplyStep.SWEPT,
]


def assert_tidy(root: Path) -> None:
    """Assert that the disk has the served revision, the previous one, and their contents only."""
    assert not [path for path in root.rglob(".*") if path.parent.parent in (root, root.parent)]
    store = RevisionStore(root)
    numbers = store.numbers()
    assert len(numbers) <= 2
    assert store.current() == numbers[-1]
    named = {entry.digest for number in numbers for entry in store.manifest(number).entries}
    assert {path.name for path in (root / "objects").iterdir()} == named


@contextlib.asynccontextmanager
async def listening(port: int) -> AsyncIterator[None]:
    """Occupy a port."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


def connected(report: DataPlaneReport) -> bool:
    return bool(report.instances)


async def again(plane: ControlPlane, agent: CrashingAgent) -> None:
    """Start the next agent, and wait until it serves the published version."""
    agent.start()
    await plane.until(connected)
    await plane.until(lambda report: report.programmed)


@pytest.mark.parametrize("step", RELOAD)
async def test_agent_killed_during_reload_is_restarted_without_traffic_loss(
    control_plane: ControlPlane, tmp_path: Path, step: ApplyStep
) -> None:
    port = free_port()
    with dying_agent(control_plane.environment(tmp_path), tmp_path) as agent:
        await control_plane.until(connected)
        await control_plane.programmed(answering(port, "one"))
        master = agent.master()
        async with Load(port) as load:
            await load.flows()
            agent.die_at(step)
            control_plane.server.publish(GATEWAY, answering(port, "two"))
            await agent.died()
            await load.flows()
            if step in (ApplyStep.TESTED, ApplyStep.CONFIRMED):
                # Seeds of the killed agent may be outdated when the next one starts.
                control_plane.server.publish(GATEWAY, answering(port, "three"))
            await again(control_plane, agent)
            await load.flows()
            newest = answering(port, "four")
            await control_plane.programmed(newest)
            await load.flows()
        assert not load.failed
        assert agent.master() == master
        assert await get(port) == (200, "four")
        assert_tidy(tmp_path / "root")


async def test_agent_killed_during_rollback_reports_error_and_serves_traffic(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    await assert_rollback_survives_kill(control_plane, tmp_path, ApplyStep.REFUSED)


async def assert_rollback_survives_kill(
    control_plane: ControlPlane, tmp_path: Path, step: ApplyStep
) -> None:
    port, other = free_port(), free_port()
    environ = control_plane.environment(tmp_path)
    busy = answering(other, "bad")
    with dying_agent(environ, tmp_path) as agent:
        await control_plane.until(connected)
        await control_plane.programmed(answering(port, "one"))
        master = agent.master()
        async with Load(port) as load, listening(other):
            agent.die_at(step)
            control_plane.server.publish(GATEWAY, busy)
            await agent.died()
            await load.flows()
            agent.start()
            report = await control_plane.until(lambda report: bool(report.error))
            assert f"bind() to 127.0.0.1:{other} failed" in report.error
            await load.flows()
            await control_plane.programmed(answering(port, "two"))
            await load.flows()
        assert agent.master() == master
        assert_tidy(tmp_path / "root")


async def test_revision_never_served_is_not_used_at_start(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    await assert_unserved_revision_is_not_used(
        control_plane, tmp_path, ApplyStep.RELOADED, nginx_too=True
    )


async def assert_unserved_revision_is_not_used(
    control_plane: ControlPlane, tmp_path: Path, step: ApplyStep, *, nginx_too: bool
) -> None:
    port, other = free_port(), free_port()
    with dying_agent(control_plane.environment(tmp_path), tmp_path) as agent:
        await control_plane.programmed(answering(port, "one"))
        async with listening(other):
            agent.die_at(step)
            control_plane.server.publish(GATEWAY, answering(other, "bad"))
            await agent.died()
            if nginx_too:
                agent.kill_nginx()
            await control_plane.server.stop(0.0)
            agent.start()
            await until(lambda: agent.log().count("nginx found") == 2)
            served = tmp_path / "root" / "current" / "gatehouse" / "sites" / "a.conf"
            await until(lambda: "one" in served.read_text(), 20)
            async with asyncio.timeout(20):
                while not await answers(port):
                    await asyncio.sleep(0.05)
            # NGINX always restarts with the last known good configuration.
            agent.kill_nginx()
            await until(lambda: agent.log().count("nginx died") >= 1)
            async with asyncio.timeout(20):
                while not await answers(port):
                    await asyncio.sleep(0.05)


async def answers(port: int) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        return await get(port) == (200, "one")
    return False
