"""The agent with a real NGINX, in this process or in one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
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


def spawn(environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start an agent as a process."""
    program = (
        "import asyncio, os, signal\n"
        "from gatehouse.agent.nginx import main\n"
        "async def live():\n"
        "    stop = asyncio.Event()\n"
        "    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)\n"
        "    await main.run_nginx_agent(main.options_from_environment(os.environ), stop)\n"
        "asyncio.run(live())\n"
    )
    return subprocess.Popen([sys.executable, "-c", program], env=dict(os.environ) | environ)
