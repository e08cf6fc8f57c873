"""A full or read-only disk: the last known good configuration is served, and the agent recovers."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.agent_control_plane import GATEWAY, ControlPlane, answering, connected
from fakes.crashing_agent import assert_tidy, dying_agent
from fakes.endpoint_changes import Backends, forwarding
from fakes.load import Load
from fakes.loopback import free_port
from fakes.nginx_agent import get
from fakes.patience import until
from fakes.small_disk import SmallDisk, small_disk
from gatehouse.dataplane.file_set import File
from gatehouse.runtime import procfs

pytestmark = pytest.mark.process


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "root", "2m") as directory:
        yield directory


def noise(name: str, size: int) -> File:
    return File.make(f"gatehouse/noise/{name}", random.Random(name).randbytes(size))


def serving(run: Path, former: int) -> bool:
    try:
        master = int((run / "nginx.pid").read_text())
    except (OSError, ValueError):
        return False
    return master != former and bool(procfs.children(master))


async def test_configuration_is_applied_after_full_disk_has_space(
    control_plane: ControlPlane, tmp_path: Path, disk: SmallDisk
) -> None:
    port = free_port()
    with dying_agent(control_plane.environment(tmp_path), tmp_path) as agent:
        await control_plane.programmed(answering(port, "one", noise("a", 100_000)))
        master = agent.master()
        async with Load(port) as load:
            large = [noise(f"large-{number}", 900_000) for number in range(4)]
            control_plane.server.publish(GATEWAY, answering(port, "two", *large))
            report = await control_plane.until(lambda report: bool(report.error))
            assert "gatehouse/noise/large-" in report.error
            assert "No space left on device" in report.error
            await load.flows()
            # Contents of the failed apply take no space from the one that fits.
            await control_plane.programmed(answering(port, "three", noise("b", 1_400_000)))
            assert await get(port) == (200, "three")
            control_plane.server.publish(GATEWAY, answering(port, "two", *large))
            await control_plane.until(lambda report: bool(report.error))
            disk.remount("size=16m")
            await control_plane.until(lambda report: report.programmed)
            assert await get(port) == (200, "two")
        assert not load.failed
        assert agent.master() == master
        assert_tidy(disk.path)


@pytest.mark.parametrize("trouble", ["full", "read-only"])
async def test_changes_fail_on_read_only_disk_and_apply_later(
    control_plane: ControlPlane, tmp_path: Path, disk: SmallDisk, trouble: str
) -> None:
    port = free_port()
    with dying_agent(control_plane.environment(tmp_path), tmp_path) as agent:
        await control_plane.programmed(answering(port, "one"))
        master = agent.master()
        async with Load(port) as load:
            if trouble == "full":
                disk.fill()
            else:
                disk.remount("ro")
            control_plane.server.publish(GATEWAY, answering(port, "two"))
            report = await control_plane.until(lambda report: bool(report.error))
            message = "No space left on device" if trouble == "full" else "Read-only file system"
            assert message in report.error
            assert report.instances[0].confirmed == answering(port, "one").version
            await load.flows()
            if trouble == "full":
                disk.free()
            else:
                disk.remount("rw")
            await control_plane.until(lambda report: report.programmed)
            await load.flows()
        assert await get(port) == (200, "two")
        assert not load.failed
        assert agent.master() == master
        assert_tidy(disk.path)


@pytest.mark.parametrize("trouble", ["full", "read-only"])
@pytest.mark.parametrize("killed", ["NGINX", "both"])
async def test_restart_on_full_disk_uses_last_known_good_configuration(
    control_plane: ControlPlane, tmp_path: Path, disk: SmallDisk, trouble: str, killed: str
) -> None:
    port = free_port()
    async with Backends(2).serving() as backends:
        with dying_agent(control_plane.environment(tmp_path), tmp_path) as agent:
            for numbers in ((0,), (0, 1)):
                bundle = forwarding(port, (backends.endpoints(*numbers), 1))
                await control_plane.programmed(bundle)
            master = agent.master()
            if trouble == "full":
                disk.fill()
            else:
                disk.remount("ro")
            if killed == "NGINX":
                os.kill(master, signal.SIGKILL)
            else:
                assert agent.process is not None
                agent.process.kill()
                agent.process.wait()
                agent.kill_nginx()
                await control_plane.until(lambda report: not report.instances)
                agent.start()
            await until(lambda: serving(tmp_path / "run", master))
            await control_plane.until(connected)
            async with Load(port) as load:
                await load.flows()
            if trouble == "full":
                disk.free()
            else:
                disk.remount("rw")
            await control_plane.programmed(forwarding(port, (backends.endpoints(1), 1)))
            assert await get(port) == (200, "1")
