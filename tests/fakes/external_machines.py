"""Machines outside the cluster: their certificates, and the agents that run there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from click.testing import CliRunner

from fakes import agent_command
from fakes.loopback import free_port
from gatehouse.cli.certs import certs
from gatehouse.controller.options import SERVER_NAME


class Machine:
    """One external machine in its own directory."""

    def __init__(self, directory: Path, name: str, port: int, proxy: str = "nginx") -> None:
        """``port``: where the control plane meets machines."""
        self.directory, self.name, self.proxy = directory / name, name, proxy
        self.port = port
        self.health = f"127.0.0.1:{free_port()}"
        self.certificates = self.directory / "certificates"
        self.log = self.directory / "agent.log"
        self.directory.mkdir(parents=True)

    def certify(self, authority: Path, balancer: str, name: str = "") -> None:
        """Get it a certificate for ``balancer`` by our own command."""
        words = ["machine", name or self.name, "--load-balancer", balancer]
        words += ["--dir", str(authority), "--out", str(self.certificates)]
        done = CliRunner().invoke(certs, words)
        assert done.exit_code == 0, done.output

    def environment(self) -> dict[str, str]:
        """Return the environment of its agent."""
        return {
            "NGINX_AGENT_COMMAND_SERVER_HOST": "127.0.0.1",
            "NGINX_AGENT_COMMAND_SERVER_PORT": str(self.port),
            "NGINX_AGENT_COMMAND_TLS_CA": str(self.certificates / "ca.crt"),
            "NGINX_AGENT_COMMAND_TLS_CERT": str(self.certificates / "tls.crt"),
            "NGINX_AGENT_COMMAND_TLS_KEY": str(self.certificates / "tls.key"),
            "NGINX_AGENT_COMMAND_TLS_SERVER_NAME": SERVER_NAME,
            "GATEHOUSE_AGENT_STATE_DIR": str(self.directory / "root"),
            "GATEHOUSE_AGENT_RUN_DIR": str(self.directory / "run"),
            "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": self.health,
            "GATEHOUSE_AGENT_PROXY": self.proxy,
            "GATEHOUSE_AGENT_WORKERS": "1",
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run its agent; its proxy ends with it."""
        async with agent_command.agent(self.environment(), self.log):
            yield

    async def metric_value(self, name: str) -> float:
        """Return a metric of the agent by its name without labels; -1 if it is missing."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.health}/metrics") as response,
        ):
            match = re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", await response.text(), re.MULTILINE)
        return float(match[1]) if match else -1.0
