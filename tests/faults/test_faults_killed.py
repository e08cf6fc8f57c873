"""Agents that are killed after a step of an apply: no request fails, no file is left over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane, answering, connected
from fakes.crashing_agent import CrashingAgent, assert_tidy, dying_agent
from fakes.endpoint_changes import Backends, forwarding, unseeded
from fakes.load import Load
from fakes.loopback import free_port
from fakes.nginx_agent import get
from fakes.patience import until
from gatehouse.agent.nginx.apply_steps import ApplyStep
from gatehouse.dataplane.file_set import FileSet

pytestmark = pytest.mark.process

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


@contextlib.asynccontextmanager
async def listening(port: int) -> AsyncIterator[None]:
    """Occupy a port."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


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


@pytest.mark.parametrize(
    "step",
    [
        ApplyStep.STAGED,
        pytest.param(ApplyStep.SWITCHED, marks=pytest.mark.smoke),
        ApplyStep.RELOADED,
        ApplyStep.CONFIRMED,
    ],
)
async def test_agent_killed_with_nginx_serves_without_control_plane(
    control_plane: ControlPlane, tmp_path: Path, step: ApplyStep
) -> None:
    port = free_port()
    with dying_agent(control_plane.environment(tmp_path), tmp_path) as agent:
        await control_plane.programmed(answering(port, "one"))
        agent.die_at(step)
        control_plane.server.publish(GATEWAY, answering(port, "two"))
        await agent.died()
        agent.kill_nginx()
        await control_plane.server.stop(0.0)
        agent.start()
        await until(lambda: agent.log().count("] serving ") == 2)
        assert (await get(port))[1] in ("one", "two")
        await control_plane.restart()
        await control_plane.programmed(answering(port, "two"))
        assert await get(port) == (200, "two")
        assert_tidy(tmp_path / "root")


@pytest.mark.parametrize("step", [ApplyStep.SWITCHED, ApplyStep.CONFIRMED, ApplyStep.SWEPT])
async def test_leftovers_of_killed_agent_are_removed_without_new_change(
    control_plane: ControlPlane, tmp_path: Path, step: ApplyStep
) -> None:
    port = free_port()
    with dying_agent(control_plane.environment(tmp_path), tmp_path) as agent:
        await control_plane.until(connected)
        for text in ("zero", "one"):
            await control_plane.programmed(answering(port, text))
        for text in ("two", "three", "four"):
            agent.die_at(step)
            control_plane.server.publish(GATEWAY, answering(port, text))
            await agent.died()
            await again(control_plane, agent)
        assert await get(port) == (200, "four")
        assert_tidy(tmp_path / "root")


@pytest.mark.parametrize("step", [ApplyStep.AMENDED, ApplyStep.TAKEN])
async def test_agent_killed_during_endpoint_change_leaves_traffic_unchanged(
    control_plane: ControlPlane, tmp_path: Path, step: ApplyStep
) -> None:
    port = free_port()
    async with Backends(3).serving() as backends:

        def bundle(*numbers: int) -> FileSet:
            return forwarding(port, (backends.endpoints(*numbers), 1))

        with dying_agent(control_plane.environment(tmp_path), tmp_path) as agent:
            await control_plane.until(connected)
            await control_plane.programmed(bundle(0))
            await unseeded(tmp_path)
            master = agent.master()
            async with Load(port) as load:
                await load.flows()
                agent.die_at(step)
                control_plane.server.publish(GATEWAY, bundle(0, 1))
                await agent.died()
                await load.flows()
                await again(control_plane, agent)
                await control_plane.programmed(bundle(2))
                await load.flows()
            assert not load.failed
            assert agent.master() == master
            assert await get(port) == (200, "2")
            assert_tidy(tmp_path / "root")


@pytest.mark.parametrize("step", [ApplyStep.REFUSED, ApplyStep.RETURNED])
async def test_agent_killed_during_rollback_is_restarted(
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


@pytest.mark.parametrize(
    "step", [ApplyStep.TESTED, ApplyStep.SWITCHED, ApplyStep.RELOADED, ApplyStep.REFUSED]
)
@pytest.mark.parametrize("nginx_too", [False, True])
async def test_agent_does_not_start_with_unserved_configuration(
    control_plane: ControlPlane, tmp_path: Path, step: ApplyStep, nginx_too: bool
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
            await until(lambda: "one" in served.read_text())
            async with patience.limit():
                while not await answers(port):
                    await patience.pause()
            # NGINX always restarts with the last known good configuration.
            agent.kill_nginx()
            await until(lambda: agent.log().count("nginx died") >= 1)
            async with patience.limit():
                while not await answers(port):
                    await patience.pause()


async def answers(port: int) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        return await get(port) == (200, "one")
    return False
