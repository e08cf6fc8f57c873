"""The NGINX agent in this process, with a real NGINX."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from gatehouse.agent.nginx import main
from gatehouse.agent.nginx import master as masters
from gatehouse.agent.nginx.paths import NginxPaths


@contextlib.asynccontextmanager
async def running(options: main.AgentOptions) -> AsyncIterator[asyncio.Task[None]]:
    stop = asyncio.Event()
    task = asyncio.create_task(main.run_nginx_agent(options, stop))
    try:
        yield task
    finally:
        stop.set()
        await task


async def get(port: int, path: str = "/") -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        return response.status, await response.text()


def master_pid(directory: Path) -> int:
    pid = masters.read_pid_file(NginxPaths(directory / "root", directory / "run"))
    if pid is None:
        raise FileNotFoundError(directory / "run" / "nginx.pid")
    return pid
