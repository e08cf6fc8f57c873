"""The agent with a real Envoy, in this process or in one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from fakes.envoy_running import (
    EnvoyControlPlane,
)
from gatehouse.agent.envoy import supervisor
from gatehouse.agent.envoy.main import run_envoy_agent
from gatehouse.agent.options import AgentOptions, options_from_environment


def envoys(directory: Path) -> list[int]:
    return supervisor.find_running(directory / "run" / "envoy" / "bootstrap.json")


def options(plane: EnvoyControlPlane, directory: Path, **more: str) -> AgentOptions:
    return options_from_environment(plane.environment(directory) | more)


@contextlib.asynccontextmanager
async def running(agent_options: AgentOptions) -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    task = asyncio.create_task(run_envoy_agent(agent_options, stop))
    try:
        yield stop
    finally:
        stop.set()
        await task


def spawn(plane: EnvoyControlPlane, directory: Path) -> subprocess.Popen[bytes]:
    environ = dict(os.environ) | plane.environment(directory)
    command = [sys.executable, "-m", "gatehouse", "agent", "--proxy", "envoy"]
    return subprocess.Popen(command, env=environ)
