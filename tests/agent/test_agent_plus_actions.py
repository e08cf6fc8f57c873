"""Files first, then the servers of each upstream as an action: as agents of the field take it.

Played by our own agent, which understands actions as they do, and here does not say that it could
have endpoints as files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.endpoint_changes import Backends, connected
from fakes.loopback import free_port
from fakes.nginx_agent import get, running
from fakes.nginx_plus import Fault
from fakes.nginx_plus_agent import FakeProgram, assert_no_reload, forwarding
from gatehouse.agent.nginx import instance_info
from gatehouse.compiler.backends import nginx
from gatehouse.dataplane.file_set import FileSet
from gatehouse.wire.mpi.v1 import command_pb2

pytestmark = pytest.mark.process

CAPABILITIES = nginx.NginxCapabilities.parse("1.29.3 (nginx-plus-r36)", api_actions=True)


@pytest.fixture
def plus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProgram:
    whole = instance_info.InstanceInfo.resource

    def as_of_the_field(self: instance_info.InstanceInfo) -> command_pb2.Resource:
        resource = whole(self)
        resource.instances[0].instance_config.agent_config.features.remove("endpoints")
        return resource

    monkeypatch.setattr(instance_info.InstanceInfo, "resource", as_of_the_field)
    return FakeProgram(tmp_path)


async def test_version_is_confirmed_after_files_and_actions(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    options = plus.options(control_plane, tmp_path, health)
    async with Backends(3).serving() as backends, running(options):
        report = await connected(control_plane)
        assert "api-action" in report.instances[0].features
        first, second = (backends.endpoints(0), 1), (backends.endpoints(1), 1)
        await control_plane.programmed(forwarding(port, first, second, capabilities=CAPABILITIES))
        assert {(await get(port))[1] for _ in range(4)} == {"0", "1"}
        assert not (tmp_path / "root" / "current" / "gatehouse" / "endpoints").exists()
        async with assert_no_reload(health):
            second = (backends.endpoints(1, 2), 1)
            await control_plane.programmed(
                forwarding(port, first, second, capabilities=CAPABILITIES)
            )
        assert {(await get(port))[1] for _ in range(8)} == {"0", "1", "2"}


async def test_failed_action_is_reported_and_retried(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port = free_port()
    options = plus.options(control_plane, tmp_path)
    async with Backends(2).serving() as backends, running(options):
        await connected(control_plane)

        def to(number: int) -> FileSet:
            shares = (backends.endpoints(number), 1)
            return forwarding(port, shares, capabilities=CAPABILITIES)

        good = to(0)
        await control_plane.programmed(good)
        plus.fail(Fault("POST", status=500, text="no memory", times=-1))
        control_plane.server.publish(GATEWAY, to(1))
        report = await control_plane.until(lambda report: bool(report.error))
        assert report.error == "pod-1: upstream c-0: 500 InternalError: no memory"
        assert report.instances[0].confirmed == good.version
        assert await get(port) == (200, "0")
        plus.fail()
        await control_plane.until(lambda report: report.programmed)
        assert await get(port) == (200, "1")
