"""An agent whose NGINX is killed again and again under traffic."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp

from fakes import patience
from fakes.agent_control_plane import ControlPlane, answering, connected
from fakes.durations import last
from fakes.load import Load
from fakes.loopback import free_port
from fakes.nginx_agent import get, running
from gatehouse.agent.options import options_from_environment

KILLS = 4
STEADY_SECONDS = 11.0
"""Duration of a run after which a death counts as the first one."""


@contextlib.asynccontextmanager
async def nginx(
    plane: ControlPlane, directory: Path, **more: str
) -> AsyncIterator[tuple[int, int]]:
    """Run an agent with NGINX. Yield the port that answers "ok" and the port of the health page."""
    port, health = free_port(), free_port()
    environ = plane.environment(directory) | {
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}",
        "GATEHOUSE_AGENT_WORKERS": "2",
        **more,
    }
    async with running(options_from_environment(environ)):
        await plane.until(connected)
        await plane.programmed(answering(port, "ok"))
        yield port, health


async def answers(port: int) -> None:
    """Wait until `port` answers again."""
    async with patience.limit():
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                if await get(port) == (200, "ok"):
                    return
            await patience.pause()


async def kill_repeatedly(port: int, kill: Callable[[], None]) -> Load:
    """Kill `KILLS` times under traffic, with a steady run before each, and return the traffic."""
    async with Load(port, clients=6) as load:
        for _ in range(KILLS):
            await last(STEADY_SECONDS)
            kill()
            await load.more(50)
    return load
