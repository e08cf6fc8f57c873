"""Agents that are killed between any two steps; what `make test` tries of it is in tests/agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.test_agent_endpoints import Backends, forwarding, unseeded
from agent.test_agent_killed import (
    again,
    assert_rollback_survives_kill,
    assert_tidy,
    assert_unserved_revision_is_not_used,
    connected,
)
from fakes.agent_control_plane import GATEWAY, ControlPlane, answering
from fakes.crashing_agent import dying_agent
from fakes.load import Load
from fakes.nginx_agent import get, until
from gatehouse.agent.nginx.apply_steps import ApplyStep
from gatehouse.dataplane.file_set import FileSet
from gatehouse.standalone.free_ports import free_port

pytestmark = pytest.mark.process


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
        await until(lambda: agent.log().count("] serving ") == 2, 20)
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
    await assert_rollback_survives_kill(control_plane, tmp_path, step)


@pytest.mark.parametrize(
    "step", [ApplyStep.TESTED, ApplyStep.SWITCHED, ApplyStep.RELOADED, ApplyStep.REFUSED]
)
@pytest.mark.parametrize("nginx_too", [False, True])
async def test_agent_does_not_start_with_unserved_configuration(
    control_plane: ControlPlane, tmp_path: Path, step: ApplyStep, nginx_too: bool
) -> None:
    await assert_unserved_revision_is_not_used(control_plane, tmp_path, step, nginx_too=nginx_too)
