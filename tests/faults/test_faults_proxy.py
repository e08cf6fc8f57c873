"""Proxies that are killed or stopped under traffic, with their agents."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from fakes import patience, seccomp
from fakes.agent_control_plane import GATEWAY, ControlPlane, answering
from fakes.durations import last
from fakes.envoy_agent import envoys, options, running
from fakes.envoy_running import EnvoyControlPlane, backend, website
from fakes.killed_proxy import KILLS, answers, kill_repeatedly, nginx
from fakes.load import Load
from fakes.loopback import free_port
from fakes.nginx_agent import get, master_pid
from fakes.patience import until
from gatehouse.agent.nginx import handover
from gatehouse.dataplane.file_set import File
from gatehouse.runtime import procfs
from gatehouse.runtime.watched_process import wait_until_gone

pytestmark = pytest.mark.process


@contextlib.asynccontextmanager
async def envoy(
    plane: EnvoyControlPlane, directory: Path, **more: str
) -> AsyncIterator[tuple[int, int]]:
    """Run an agent with Envoy. Yield the port that answers "ok" and the port of the health page."""
    port, health = free_port(), free_port()
    agent = options(
        plane, directory, GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS=f"127.0.0.1:{health}", **more
    )
    async with backend("ok") as address:
        try:
            async with running(agent):
                await plane.served(website(port, address))
                await healthy(health)
                yield port, health
        finally:
            for pid in envoys(directory):
                os.kill(pid, signal.SIGKILL)


async def healthy(health: int) -> None:
    """Wait until the agent is ready."""
    async with patience.limit():
        while (await get(health, "/readyz"))[0] != 200:
            await patience.pause()


@pytest.mark.smoke
async def test_nginx_master_kill_loses_no_request(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with nginx(control_plane, tmp_path) as (port, _):
        load = await kill_repeatedly(port, lambda: os.kill(master_pid(tmp_path), signal.SIGKILL))
    print(f"NGINX master killed {KILLS} times: {load}")
    assert not load.failed


@pytest.mark.parametrize("held", [True, False], ids=["held sockets", "no held sockets"])
async def test_request_in_progress_survives_kill_of_master(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    if not held:
        # As if the directories of the agent were mounted noexec.
        monkeypatch.setattr(handover, "write_sender", lambda _paths: None)
    arrived = asyncio.Event()
    async with (
        backend("slow", wait=2.0, on_request=arrived.set) as (host, backend_port),
        nginx(control_plane, tmp_path) as (port, health),
    ):
        text = f"location = /slow {{ proxy_pass http://{host}:{backend_port}; }}"
        slow = File.make("gatehouse/sites/slow.conf", text)
        await control_plane.programmed(answering(port, "ok", slow))
        request = asyncio.create_task(get(port, "/slow"))
        await until(arrived.is_set)
        master = master_pid(tmp_path)
        workers = procfs.children(master)
        os.kill(master, signal.SIGKILL)
        assert await request == (200, "slow")
        assert await wait_until_gone(workers, patience.SECONDS)
        await answers(port)
        await healthy(health)


async def test_removed_listener_refuses_connections_at_once(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with nginx(control_plane, tmp_path) as (port, _):
        other = free_port()
        await control_plane.programmed(answering(other, "ok"))
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(port)
        await control_plane.programmed(answering(port, "ok"))
        assert await get(port) == (200, "ok")


async def test_kill_of_all_nginx_processes_refuses_no_connection(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    def kill() -> None:
        master = master_pid(tmp_path)
        for pid in (master, *procfs.pids_in_session(master)):
            os.kill(pid, signal.SIGKILL)

    async with nginx(control_plane, tmp_path) as (port, _):
        load = await kill_repeatedly(port, kill)
    print(f"NGINX killed {KILLS} times: {load}")
    assert "ClientConnectorError" not in load.failed
    # One request may be in progress on each connection.
    assert load.failed.total() <= KILLS * 6


def spawn(environ: dict[str, str], *prefix: str) -> subprocess.Popen[bytes]:
    """Start an agent as a process. `prefix`: a program that executes the one of its arguments."""
    command = [*prefix, sys.executable, "-m", "gatehouse", "agent"]
    return subprocess.Popen(command, env=dict(os.environ) | environ)


async def test_kill_of_master_refuses_nothing_in_a_container(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Run the agent under the seccomp filter of a container runtime."""
    probe = [sys.executable, seccomp.__file__, "/bin/true"]
    if (await asyncio.to_thread(subprocess.run, probe, check=False)).returncode:
        pytest.skip("the kernel does not permit seccomp filters")
    port = free_port()
    environ = control_plane.environment(tmp_path)
    with spawn(environ, sys.executable, seccomp.__file__) as agent:
        try:
            control_plane.server.publish(GATEWAY, answering(port, "ok"))
            await answers(port)
            await control_plane.programmed(answering(port, "ok"))
            load = await kill_repeatedly(
                port, lambda: os.kill(master_pid(tmp_path), signal.SIGKILL)
            )
        finally:
            agent.terminate()
            await asyncio.to_thread(agent.wait)
    print(f"NGINX master killed {KILLS} times under seccomp: {load}")
    assert not load.failed


async def reason(health: int, path: str = "/readyz") -> str:
    """Wait until a health page fails, and return its text."""
    async with patience.limit():
        while True:
            status, text = await get(health, path)
            if status == 503:
                return text
            await patience.pause()


async def metric(health: int, name: str) -> float:
    """Return the value of a metric of the agent."""
    _, text = await get(health, "/metrics")
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


PROBES = ("/version.sock", "/probe.sock")
"""Sockets of NGINX and Envoy to which agents connect once for each worker."""


def probe_connections(directory: Path) -> int:
    """Return the number of connections on which workers respond to probes of an agent."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    connected = [line.split()[7] for line in lines if line.split()[5:6] == ["03"] and "/" in line]
    return sum(path.startswith(f"{directory}/") and path.endswith(PROBES) for path in connected)


async def current_workers(directory: Path, number: int) -> list[int]:
    """Wait until NGINX has only its configured number of workers. Return them.

    A worker that a reload replaces ends seconds later.
    """
    master = master_pid(directory)
    await until(lambda: len(procfs.children(master)) == number)
    return sorted(procfs.children(master))


HANG = {
    "GATEHOUSE_AGENT_PROBE_PERIOD_SECONDS": "0.5",
    "GATEHOUSE_AGENT_HANG_KILL_SECONDS": f"{6 * patience.FACTOR:g}",
}


@pytest.mark.parametrize("stopped", ["master", "worker", "workers", "all"])
async def test_stopped_nginx_is_reported_and_replaced(
    control_plane: ControlPlane, tmp_path: Path, stopped: str
) -> None:
    async with nginx(control_plane, tmp_path, **HANG) as (port, health):
        await healthy(health)
        master = master_pid(tmp_path)
        await until(lambda: probe_connections(tmp_path) >= 2)
        workers = await current_workers(tmp_path, 2)
        pids = {
            "master": [master],
            "worker": workers[:1],
            "workers": workers,
            "all": [master, *workers],
        }[stopped]
        async with Load(port, clients=6) as load:
            await load.flows()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            assert f"NGINX {'master' if pids == [master] else ''}" in await reason(health)
            report = await control_plane.until(lambda report: bool(report.unhealthy))
            assert "does not respond" in report.unhealthy
            assert not await metric(health, "gatehouse_agent_hung_kills_total")
            await until(lambda: not any(map(procfs.is_alive, pids)))
            await answers(port)
            await control_plane.until(lambda report: not report.unhealthy)
            await healthy(health)
        print(f"NGINX {stopped} stopped: {load}")
        assert "ClientConnectorError" not in load.failed
        if stopped == "master":
            assert not load.failed
        assert await metric(health, "gatehouse_agent_hung_kills_total") == len(pids)
        assert (await get(health, "/livez"))[0] == 200


@pytest.mark.smoke
async def test_stopped_envoy_is_reported_and_replaced(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    async with envoy(plane, tmp_path, **HANG) as (port, health):
        [pid] = envoys(tmp_path)
        async with Load(port, clients=6) as load:
            await load.flows()
            os.kill(pid, signal.SIGSTOP)
            assert "Envoy" in await reason(health)
            report = await plane.until(lambda report: bool(report.unhealthy))
            assert "does not respond" in report.unhealthy
            await until(lambda: not procfs.is_alive(pid))
            await answers(port)
            await plane.until(lambda report: not report.unhealthy)
            await healthy(health)
        print(f"Envoy stopped: {load}")
        assert await metric(health, "gatehouse_agent_hung_kills_total") == 1


HOLD = """
import ctypes, os, sys
thread, wall = int(sys.argv[1]), 0x40000000
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
assert ptrace(0x4206, thread, 0, 0) == 0  # PTRACE_SEIZE
assert ptrace(0x4207, thread, 0, 0) == 0  # PTRACE_INTERRUPT
os.waitpid(thread, wall)
print("held", flush=True)
os.waitpid(thread, wall)
"""
"""Stop one thread of another process until it is killed."""


def threads(pid: int) -> dict[str, int]:
    """Return the threads of a process by name."""
    return {
        path.read_text().strip(): int(path.parent.name)
        for path in Path(f"/proc/{pid}/task").glob("*/comm")
    }


@contextlib.contextmanager
def held(thread: int) -> Iterator[None]:
    """Stop a thread. It ends with its process only."""
    command = [sys.executable, "-c", HOLD, str(thread)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as helper:
        try:
            assert helper.stdout is not None
            assert helper.stdout.readline() == b"held\n"
            yield
        finally:
            helper.kill()


@pytest.mark.parametrize("name", ["wrk:worker_0", "wrk:worker_1", "wrk:worker_2", "envoy"])
async def test_envoy_with_one_hung_thread_is_replaced(
    plane: EnvoyControlPlane, tmp_path: Path, name: str
) -> None:
    more = HANG | {"GATEHOUSE_AGENT_WORKERS": "3"}
    async with envoy(plane, tmp_path, **more) as (port, health):
        [pid] = envoys(tmp_path)
        # Probes have begun, which continue on the connections that they have.
        await until(lambda: probe_connections(tmp_path) >= 3)
        assert sum(thread.startswith("wrk:worker_") for thread in threads(pid)) == 3
        with held(threads(pid)[name]):
            part = name.replace("wrk:worker_", "worker ") if name != "envoy" else "admin interface"
            assert "Envoy" in (text := await reason(health))
            assert ("worker" in text) == ("worker" in part), text
            # An idle Envoy; a busy one has six times as long.
            await until(lambda: not procfs.is_alive(pid))
        await answers(port)
        await healthy(health)
        assert await metric(health, "gatehouse_agent_hung_kills_total") == 1


@pytest.mark.parametrize("proxy", ["nginx", "envoy"])
async def test_paused_agent_kills_no_proxy(
    plane: EnvoyControlPlane, tmp_path: Path, proxy: str
) -> None:
    """Stop agent and proxy for longer than the limit, and let the agent continue first."""
    health = free_port()
    environ = plane.environment(tmp_path) | HANG | {"GATEHOUSE_AGENT_PROXY": proxy}
    environ["GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS"] = f"127.0.0.1:{health}"
    port = free_port()
    async with backend("ok") as address:
        with spawn(environ) as agent:
            try:
                if proxy == "envoy":
                    plane.publish(website(port, address))
                else:
                    plane.server.publish(GATEWAY, answering(port, "ok"))
                await answers(port)
                await until(lambda: probe_connections(tmp_path))
                if proxy == "envoy":
                    [pid], workers = envoys(tmp_path), []
                else:
                    pid, workers = master_pid(tmp_path), await current_workers(tmp_path, 1)
                proxies = [pid, *workers]
                for process_id in (agent.pid, *proxies):
                    os.kill(process_id, signal.SIGSTOP)
                await last(8 * patience.FACTOR)
                os.kill(agent.pid, signal.SIGCONT)
                await last(4 * patience.FACTOR)
                for process_id in proxies:
                    os.kill(process_id, signal.SIGCONT)
                await answers(port)
                await healthy(health)
                assert all(map(procfs.is_alive, proxies))
                assert not await metric(health, "gatehouse_agent_hung_kills_total")
            finally:
                agent.terminate()
                await asyncio.to_thread(agent.wait)


@pytest.mark.smoke
async def test_killed_envoy_is_restarted_at_once(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    async with envoy(plane, tmp_path) as (port, _):
        load = await kill_repeatedly(port, lambda: os.kill(envoys(tmp_path)[0], signal.SIGKILL))
    print(f"Envoy killed {KILLS} times: {load}")
