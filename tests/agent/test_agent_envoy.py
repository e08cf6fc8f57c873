"""An agent with a real Envoy, under a real control plane."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from agent_control_plane import free_port
from envoy_running import (
    EnvoyControlPlane,
    backend,
    bad_cluster,
    cluster,
    endpoints,
    get,
    invalid_cluster,
    routes,
    website,
)

from gatehouse.agent import processes
from gatehouse.agent.envoy import supervision
from gatehouse.agent.envoy.main import run
from gatehouse.agent.options import Options, options_from_environment

pytestmark = pytest.mark.process


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[EnvoyControlPlane]:
    directory = tmp_path / "control-plane"
    directory.mkdir()
    made = EnvoyControlPlane(directory)
    await made.start()
    yield made
    await made.server.stop(0.1)


@pytest.fixture(autouse=True)
def no_envoy_is_left(tmp_path: Path) -> object:
    yield
    for pid in envoys(tmp_path):
        os.kill(pid, signal.SIGKILL)


def envoys(directory: Path) -> list[int]:
    return supervision._running(directory / "run" / "envoy" / "bootstrap.json")


def options(plane: EnvoyControlPlane, directory: Path, **more: str) -> Options:
    return options_from_environment(plane.environment(directory) | more)


@contextlib.asynccontextmanager
async def running(found: Options) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(run(found, stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_what_is_published_is_served_when_it_is_confirmed(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    found = options(plane, tmp_path, GATEHOUSE_AGENT_HEALTH_ADDRESS=f"127.0.0.1:{health}")
    async with backend("one") as one, backend("two") as two, running(found):
        report = await plane.served(website(port, one))
        assert report.instances[0].instance == "pod-1"
        assert report.instances[0].proxy.startswith("envoy/1.")
        assert "gatehouse.relay" in report.instances[0].features
        assert await get(port) == (200, "one")
        await plane.served(website(port, two))
        assert await get(port) == (200, "two")
        more = (cluster("other"), endpoints("other", one))
        changed = (routes("http", ("other", "other"), ("*", "web")), *more)
        await plane.served(website(port, two, *changed))
        assert await get(port, "other") == (200, "one")
        await plane.served(website(port, two))
        assert await get(port, "other") == (200, "two")
