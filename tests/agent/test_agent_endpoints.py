"""Endpoint updates in a real NGINX under load, with and without reloads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from fakes import patience
from fakes.agent_control_plane import ControlPlane
from fakes.endpoint_changes import Backends, Load, agents, connected, forwarding, unseeded, workers
from fakes.loopback import free_port
from fakes.nginx_agent import get, master_pid, running
from fakes.patience import until
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.agent.nginx import main, nameserver
from gatehouse.runtime import procfs

pytestmark = pytest.mark.process

CHANGES = int(os.environ.get("ENDPOINT_CHANGES", "50"))


@pytest.mark.long
async def test_endpoints_change_under_load_without_reload(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    environ = control_plane.environment(tmp_path) | {"GATEHOUSE_AGENT_WORKERS": "2"}
    with agents(environ) as start:
        agent = start()
        async with Backends(4).serving() as backends:
            report = await connected(control_plane)
            assert "endpoints" in report.instances[0].features
            await control_plane.programmed(forwarding(port, (backends.endpoints(0, 1), 1)))
            assert (await get(port))[0] == 200
            await unseeded(tmp_path)
            await until(lambda: len(workers(tmp_path)) == 2)
            before = (master_pid(tmp_path), workers(tmp_path))
            async with Load(port) as load:
                for number in range(CHANGES):
                    if number == CHANGES // 2:
                        agent.kill()
                        await asyncio.to_thread(agent.wait)
                        await control_plane.until(lambda report: not report.instances)
                        await load.more(100)
                        agent = start()
                    pair = (number % 4, (number + 1) % 4)
                    bundle = forwarding(port, (backends.endpoints(*pair), 1))
                    await control_plane.programmed(bundle)
                    await load.settles({str(endpoint) for endpoint in pair})
            assert load.failed == {}
            assert (master_pid(tmp_path), workers(tmp_path)) == before


@pytest.mark.long
async def test_new_upstream_is_served_from_first_request(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    environ = control_plane.environment(tmp_path) | {
        "GATEHOUSE_AGENT_WORKERS": "2",
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}",
    }
    async with (
        Backends(3).serving() as backends,
        running(main.options_from_environment(environ)),
    ):
        await connected(control_plane)
        await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
        async with Load(port) as load:
            for number in range(8):
                # A new cluster each time, so that NGINX never had its upstream.
                shares = ((backends.endpoints(number % 3), 1),)
                await control_plane.programmed(forwarding(port, *shares, cluster=f"d{number}"))
                await load.more(50)
            # A seed is removed by a reload before NGINX has resolved the upstream.
            await control_plane.programmed(
                forwarding(port, (backends.endpoints(2), 1), cluster="d7")
            )
            await load.settles({"2"})
            await until(lambda: load.answered["2"] >= 100)
            assert load.answered.keys() == {"2"}
            await unseeded(tmp_path)
            await control_plane.programmed(
                forwarding(port, (backends.endpoints(0), 3), (backends.endpoints(1), 1))
            )
            await unseeded(tmp_path)
            await control_plane.programmed(
                forwarding(port, (backends.endpoints(0), 3), (backends.endpoints(1, 2), 1))
            )
            await load.settles({"0", "1", "2"})
            load.answered.clear()
            total = await until(lambda: (n := load.answered.total()) >= 800 and n)
            assert abs(load.answered["0"] / total - 0.75) < 0.02
        assert load.failed == {}
        _, metrics = await get(health, "/metrics")
        (updates,) = (line for line in metrics.splitlines() if "endpoint_updates_total{" in line)
        assert float(updates.split()[-1]) == 1


async def test_upstream_without_endpoints_responds_503(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    options = main.options_from_environment(control_plane.environment(tmp_path))
    async with Backends(2).serving() as backends, running(options):
        await connected(control_plane)
        for indexes, status in (((0,), 200), ((), 503), ((1,), 200), ((), 503)):
            bundle = forwarding(port, (backends.endpoints(*indexes), 1))
            await control_plane.programmed(bundle)
            for _ in range(10):
                assert (await get(port))[0] == status


@pytest.mark.long
async def test_restarted_master_has_newest_endpoints(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    options = main.options_from_environment(control_plane.environment(tmp_path))
    async with Backends(2).serving() as backends, running(options):
        await connected(control_plane)
        await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
        await unseeded(tmp_path)
        await control_plane.programmed(forwarding(port, (backends.endpoints(1), 1)))
        dead = master_pid(tmp_path)
        os.kill(dead, signal.SIGKILL)
        statuses: list[tuple[int, str]] = []
        async with patience.limit():
            while not statuses:
                with contextlib.suppress(aiohttp.ClientError):
                    # Connections fail until a new master runs. Its first response must be right.
                    if not procfs.is_alive(dead):
                        statuses.append(await get(port))
        assert statuses == [(200, "1")]


@pytest.mark.long
async def test_data_plane_starts_with_stored_endpoints(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    options = main.options_from_environment(control_plane.environment(tmp_path))
    async with Backends(2).serving() as backends:
        async with running(options):
            await connected(control_plane)
            await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
            await unseeded(tmp_path)
        await control_plane.until(lambda report: not report.instances)
        async with running(options):
            await control_plane.until(lambda report: report.programmed)
            assert await get(port) == (200, "0")
            await unseeded(tmp_path)
            before = workers(tmp_path)
            await control_plane.programmed(forwarding(port, (backends.endpoints(1), 1)))
            assert await get(port) == (200, "1")
            assert workers(tmp_path) == before


@pytest.mark.long
async def test_nameserver_port_is_replaced_when_in_use(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    environ = control_plane.environment(tmp_path)
    async with Backends(2).serving() as backends:
        with agents(environ) as start:
            agent = start()
            await connected(control_plane)
            await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
            await unseeded(tmp_path)
            agent.kill()
            await asyncio.to_thread(agent.wait)
        await control_plane.until(lambda report: not report.instances)
        text = (tmp_path / "root" / "current" / "nginx.conf").read_text()
        taken = int(text.partition(f"resolver {nameserver.HOST}:")[2].partition(";")[0])
        thief, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=(nameserver.HOST, taken)
        )
        async with running(main.options_from_environment(environ)):
            await connected(control_plane)
            await control_plane.programmed(forwarding(port, (backends.endpoints(1), 1)))
            assert await get(port) == (200, "1")
        thief.close()


async def test_nginx_without_name_resolution_is_reloaded(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nginx_binary, "RESOLVING", (99, 0, 0))
    port = free_port()
    # For example the NGINX of Debian 12, if installed.
    old = {"GATEHOUSE_AGENT_NGINX": os.environ.get("OLD_NGINX", "")}
    options = main.options_from_environment(control_plane.environment(tmp_path) | old)
    async with Backends(2).serving() as backends, running(options):
        report = await connected(control_plane)
        assert "endpoints" not in report.instances[0].features
        for number in (0, 1):
            bundle = forwarding(port, (backends.endpoints(number), 1), named=False)
            await control_plane.programmed(bundle)
            assert await get(port) == (200, str(number))
            if number == 0:
                before = workers(tmp_path)
        await until(lambda: workers(tmp_path).isdisjoint(before))
        assert "resolver" not in (tmp_path / "root" / "current" / "nginx.conf").read_text()
