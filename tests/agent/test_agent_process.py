"""An agent with a real NGINX, under a real control plane."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from pathlib import Path

import aiohttp
import pytest
import structlog

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane, answering, write_certificate
from fakes.loopback import free_port
from fakes.nginx_agent import get, master_pid, running, spawn
from fakes.patience import until
from gatehouse.agent.nginx import main
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.runtime import procfs

pytestmark = pytest.mark.process


async def test_file_set_is_applied_and_served(control_plane: ControlPlane, tmp_path: Path) -> None:
    port, health = free_port(), free_port()
    environ = control_plane.environment(tmp_path) | {
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}"
    }
    large = File.make("gatehouse/assets/large", b"\0" * (3 << 20))
    secret = File.make("gatehouse/keys/a", b"key material", secret=True)
    empty = File.make("gatehouse/assets/empty", b"")
    async with running(main.options_from_environment(environ)):
        await control_plane.until(lambda report: bool(report.instances))
        assert (await get(health, "/readyz"))[0] == 503
        assert (await get(health, "/livez"))[0] == 200
        report = await control_plane.programmed(answering(port, "one", large, secret, empty))
        assert report.instances[0].instance == "pod-1"
        assert report.instances[0].proxy.startswith("nginx/1.")
        assert await get(port) == (200, "one")
        assert (await get(health, "/readyz"))[0] == 200
        current = tmp_path / "root" / "current" / "gatehouse"
        assert (current / "assets" / "large").read_bytes() == large.content
        assert (current / "keys" / "a").stat().st_mode & 0o777 == 0o600
        await control_plane.programmed(answering(port, "two"))
        assert await get(port) == (200, "two")
        assert len(list((tmp_path / "root" / "generations").iterdir())) == 2
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(port)


async def test_file_set_rejected_by_nginx_changes_nothing(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    options = main.options_from_environment(control_plane.environment(tmp_path))
    async with running(options):
        await control_plane.until(lambda report: bool(report.instances))
        good = answering(port, "good")
        await control_plane.programmed(good)
        control_plane.server.publish(
            GATEWAY, FileSet([File.make("gatehouse/http.conf", "no_such_directive on;\n")])
        )
        report = await control_plane.until(lambda report: bool(report.error))
        assert 'unknown directive "no_such_directive" in gatehouse/http.conf:1' in report.error
        assert report.instances[0].confirmed == good.version
        assert not report.programmed
        assert await get(port) == (200, "good")
        await control_plane.programmed(answering(port, "better"))
        assert await get(port) == (200, "better")


async def test_trial_is_tested_and_not_served(control_plane: ControlPlane, tmp_path: Path) -> None:
    port, health = free_port(), free_port()
    environ = control_plane.environment(tmp_path) | {
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}"
    }
    async with running(main.options_from_environment(environ)):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "tried").as_trial())
        assert (await get(health, "/readyz"))[0] == 503
        await control_plane.programmed(answering(port, "good"))
        assert (await get(health, "/readyz"))[0] == 200
        workers = procfs.children(master_pid(tmp_path))
        await control_plane.programmed(answering(port, "tried").as_trial())
        assert await get(port) == (200, "good")
        bad = FileSet([File.make("gatehouse/http.conf", "no_such_directive;\n")]).as_trial()
        control_plane.server.publish(GATEWAY, bad)
        report = await control_plane.until(lambda report: bool(report.error))
        assert 'unknown directive "no_such_directive"' in report.error
        assert report.instances[0].rejected_version == bad.version
        assert await get(port) == (200, "good")
        assert procfs.children(master_pid(tmp_path)) == workers, "NGINX was not reloaded"
        await control_plane.programmed(answering(port, "final"))
        assert await get(port) == (200, "final")


async def test_port_in_use_is_rolled_back(control_plane: ControlPlane, tmp_path: Path) -> None:
    port = free_port()
    taken = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    busy = taken.sockets[0].getsockname()[1]
    options = main.options_from_environment(control_plane.environment(tmp_path))
    async with running(options):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "good"))
        control_plane.server.publish(GATEWAY, answering(busy, "bad"))
        report = await control_plane.until(lambda report: bool(report.error))
        assert f"bind() to 127.0.0.1:{busy} failed" in report.error
        assert await get(port) == (200, "good")
    taken.close()
    await taken.wait_closed()


async def test_dead_master_is_restarted_with_last_known_good_configuration(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    options = main.options_from_environment(control_plane.environment(tmp_path))
    async with running(options):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "kept"))
        dead = master_pid(tmp_path)
        orphans = procfs.children(dead)
        os.kill(dead, signal.SIGKILL)
        await until(lambda: not any(procfs.is_alive(pid) for pid in orphans))

        def replaced() -> bool:
            with contextlib.suppress(OSError, ValueError):
                return master_pid(tmp_path) != dead and bool(procfs.children(master_pid(tmp_path)))
            return False

        await until(replaced)
        assert await get(port) == (200, "kept")
        await until(lambda: control_plane.incidents)
        await control_plane.until(lambda report: not report.unhealthy)
        assert [incident[:2] for incident in control_plane.incidents] == [(GATEWAY, "pod-1")]
        assert control_plane.incidents[0][2].startswith("NGINX is not healthy: ")
        await control_plane.programmed(answering(port, "changed"))
        assert await get(port) == (200, "changed")
    assert len(control_plane.incidents) == 1, "a stop is no incident"


async def test_version_stays_confirmed_after_control_plane_restart(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    health = free_port()
    environ = control_plane.environment(tmp_path) | {
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}"
    }
    bundle = answering(port, "same")

    async def connected() -> bool:
        _, text = await get(health, "/metrics")
        return (
            re.search(r"^gatehouse_agent_control_plane_connected\{.*\} 1", text, re.MULTILINE)
            is not None
        )

    async with running(main.options_from_environment(environ)):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(bundle)
        workers = procfs.children(master_pid(tmp_path))
        with structlog.testing.capture_logs() as logs:
            await control_plane.restart()
            await control_plane.until(lambda report: bool(report.instances))
            # Before a publication. The agent stays ready.
            async with patience.limit():
                while not await connected():
                    await patience.pause()
            assert (await get(health, "/readyz"))[0] == 200
            report = await control_plane.programmed(bundle)
        assert report.instances[0].confirmed == bundle.version
        assert not [log for log in logs if log["event"] == "apply sent"]
        # A worker of the state before `bundle` may have ended meanwhile; a reload adds one.
        assert procfs.children(master_pid(tmp_path)) <= workers


async def test_requests_of_restarted_control_plane_are_answered(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with running(main.options_from_environment(control_plane.environment(tmp_path))):
        control_plane.server.publish("ns/gw", answering(port, "one"))
        await control_plane.programmed(answering(port, "one"))
        for text in ("two", "three", "four"):
            await control_plane.restart()
            control_plane.server.publish("ns/gw", answering(port, text))
            await control_plane.programmed(answering(port, text))


async def test_rejected_token_is_retried_until_accepted(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    options = main.options_from_environment(control_plane.environment(tmp_path))
    control_plane.token.write_text("bad")
    async with running(options):
        await asyncio.sleep(0)
        control_plane.token.write_text("good:pod-1")
        report = await control_plane.until(lambda report: bool(report.instances))
        assert report.instances[0].instance == "pod-1"


async def test_renewed_certificate_serves_new_connections(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    write_certificate(control_plane.directory)
    options = main.options_from_environment(control_plane.environment(tmp_path))
    async with running(options):
        await control_plane.until(lambda report: bool(report.instances))


async def test_nginx_survives_agent_kill_and_is_adopted(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    environ = control_plane.environment(tmp_path)
    with spawn(environ) as first:
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "one"))
        master = master_pid(tmp_path)
        for _ in range(2):
            first.kill()
            await asyncio.to_thread(first.wait)
            await control_plane.until(lambda report: not report.instances)
            assert await get(port) == (200, "one")
            first = spawn(environ)
            await control_plane.until(lambda report: report.programmed)
            assert master_pid(tmp_path) == master
        await control_plane.programmed(answering(port, "two"))
        assert await get(port) == (200, "two")
        assert master_pid(tmp_path) == master
        first.terminate()
        assert await asyncio.to_thread(first.wait) == 0
        assert not procfs.is_alive(master)


async def test_keep_alive_requests_succeed_during_reloads(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    options = main.options_from_environment(control_plane.environment(tmp_path))
    failures: list[str] = []
    count, done = 0, False

    async def client() -> None:
        nonlocal count
        async with aiohttp.ClientSession() as session:
            while not done:
                # POST, since clients silently repeat a GET that failed on a reused connection.
                async with session.post(f"http://127.0.0.1:{port}/") as response:
                    count += 1
                    if response.status != 200:
                        failures.append(str(response.status))

    async with running(options):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "v0"))
        clients = [asyncio.create_task(client()) for _ in range(8)]
        for number in range(1, 6):
            await control_plane.programmed(answering(port, f"v{number}"))
            assert await get(port) == (200, f"v{number}")
        done = True
        await asyncio.gather(*clients)
    assert failures == []
    assert count > 100
