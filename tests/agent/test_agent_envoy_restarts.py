"""Restarts and ends of an agent, its Envoy and its control plane lose no request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import structlog

from fakes import patience
from fakes.envoy_agent import envoys, options, running, spawn
from fakes.envoy_running import (
    EnvoyControlPlane,
    backend,
    get,
    website,
)
from fakes.envoy_traffic import Traffic, answers
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.dataplane.xds.ads_messages import Response
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    LISTENER_TYPE_URL,
    RUNTIME_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
)
from gatehouse.dataplane.xds.runtime_limits import LIMITS_LAYER
from gatehouse.runtime import procfs

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("no_envoy_is_left")]


async def test_requests_succeed_while_control_plane_restarts(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    await plane.server.stop(0.0)

    def start(one: tuple[str, int]) -> subprocess.Popen[bytes]:
        expected = json.dumps([port, one])
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "fakes.envoy_plane_process"),
                *(str(plane.directory), str(plane.port), expected),
            ],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        )

    async with backend("one") as one, backend("two") as two:
        first = start(one)
        async with running(options(plane, tmp_path)):
            await answers(port, "one")
            async with Traffic(port).running() as traffic:
                await traffic.more()
                first.kill()
                await asyncio.to_thread(first.wait)
                await traffic.more()
                second = start(two)
                async with patience.limit():
                    while await get(port) != (200, "two"):
                        await patience.pause()
                await traffic.more()
            second.kill()
            await asyncio.to_thread(second.wait)
    assert traffic.lost == []


async def test_restarted_control_plane_sends_nothing_when_unchanged(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    async with backend("one") as one, running(options(plane, tmp_path)):
        await plane.served(website(port, one))
        responses: list[Response] = []
        say = AdsSession.next

        def next_(self: AdsSession) -> Response | None:
            response = say(self)
            if response is not None:
                responses.append(response)
            return response

        monkeypatch.setattr(AdsSession, "next", next_)
        await plane.restart()
        await plane.served(website(port, one))
        assert {response.type_url for response in responses} == {
            CLUSTER_TYPE_URL,
            SIDECAR_CONFIG_TYPE_URL,
            LISTENER_TYPE_URL,
            RUNTIME_TYPE_URL,
        }
        assert not any(response.resources for response in responses)
        # A new control plane cannot know that Envoy knows that there are no limits.
        removed = {
            (response.type_url, response.removed) for response in responses if response.removed
        }
        assert removed == {(RUNTIME_TYPE_URL, (LIMITS_LAYER,))}


async def test_envoy_survives_agent_kill_and_is_adopted(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with backend("one") as one, backend("two") as two:
        agent = spawn(plane, tmp_path)
        await plane.until(lambda report: bool(report.instances))
        await plane.served(website(port, one))
        (pid,) = envoys(tmp_path)
        async with Traffic(port).running() as traffic:
            for target in (two, one):
                await traffic.more()
                agent.kill()
                await asyncio.to_thread(agent.wait)
                await plane.until(lambda report: not report.instances)
                await traffic.more()
                agent = spawn(plane, tmp_path)
                await plane.until(lambda report: report.programmed)
                await plane.served(website(port, target))
                assert envoys(tmp_path) == [pid]
        assert traffic.lost == []
        agent.terminate()
        assert await asyncio.to_thread(agent.wait) == 0
        assert not procfs.is_alive(pid)


async def test_killed_envoy_is_restarted_with_all_resources(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        await plane.served(website(port, one))
        await plane.served(website(port, two))
        await plane.server.stop(0.0)
        (pid,) = envoys(tmp_path)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: bool(envoys(tmp_path)) and envoys(tmp_path) != [pid])
        await answers(port, "two")


async def test_stored_resources_are_served_without_control_plane(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with backend("one") as one, backend("two") as two:
        async with running(options(plane, tmp_path)):
            await plane.served(website(port, one))
            await plane.served(website(port, two))
        assert not envoys(tmp_path)
        database = tmp_path / "root" / "envoy.db"
        assert database.stat().st_mode & 0o777 == 0o600
        await plane.server.stop(0.0)
        async with running(options(plane, tmp_path)):
            await answers(port, "two")
            plane.server = plane._make()
            await plane.start()
            await plane.served(website(port, one))
            assert await get(port) == (200, "one")


async def test_envoy_never_gets_older_resources(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    port = free_port()
    database = tmp_path / "root" / "envoy.db"
    async with backend("one") as one, backend("two") as two:
        agent = spawn(plane, tmp_path)
        await plane.until(lambda report: bool(report.instances))
        await plane.served(website(port, one))
        await until(lambda: count(database) == 4)
        older = {path: path.read_bytes() for path in database.parent.glob("envoy.db*")}
        await plane.served(website(port, two))
        agent.kill()
        await asyncio.to_thread(agent.wait)
        await plane.server.stop(0.0)
        for path, content in older.items():
            path.write_bytes(content)
        async with running(options(plane, tmp_path)), Traffic(port).running() as traffic:
            log = tmp_path / "run" / "envoy.log"
            await traffic.more()
            assert await get(port) == (200, "two"), log.read_text()
            plane.server = plane._make()
            await plane.start()
            await plane.served(website(port, two))
            assert await get(port) == (200, "two")
            await plane.served(website(port, one))
            assert await get(port) == (200, "one")
        assert traffic.lost == []


def count(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        (number,) = connection.execute("SELECT count(*) FROM resources").fetchone()
        return int(number)


async def test_shutdown_is_announced_and_loses_no_request(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    agent_options = options(plane, tmp_path)
    async with backend("slow", wait=0.05) as slow, running(agent_options) as stop:
        await plane.served(website(port, slow))
        async with Traffic(port).running() as traffic:
            await traffic.more()
            stop.set()
            await plane.until(lambda report: not report.instances)
            # Load balancers continue to connect to this data plane for a moment.
            await traffic.more()
        await until(lambda: not envoys(tmp_path))
        assert traffic.lost == []


async def test_request_longer_than_drain_timeout_is_aborted(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    agent_options = options(plane, tmp_path, GATEHOUSE_AGENT_DRAIN_SECONDS="1")
    asked_for = asyncio.Event()

    async def keep_waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked_for.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep_waiting, "127.0.0.1", 0) as silent:
        with structlog.testing.capture_logs() as logs:
            async with running(agent_options):
                await plane.served(website(port, silent.sockets[0].getsockname()))
                slow_request = asyncio.create_task(get(port))
                async with patience.limit():
                    await asked_for.wait()
        assert "drain timeout exceeded" in {entry["event"] for entry in logs}
        with pytest.raises(aiohttp.ClientError):
            await slow_request
