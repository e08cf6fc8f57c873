"""An agent whose NGINX can have sidecars."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.nginx_agent import running
from gatehouse.agent.nginx import main
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.file_set import FileSet

ABLE = nginx.NginxCapabilities.parse("1.31.3", connectors=True)
ADDRESS = "127.0.0.1"


def without(port: int) -> FileSet:
    """Return a file set that needs no connector."""
    host = ir.VirtualHost("", (ir.Route("a/b/0/0", ir.Match(), ir.Respond(204)),))
    listener = ir_gateway.Listener(port, "HTTP", (host,))
    gateway = ir_gateway.GatewayConfiguration(GATEWAY, bind_address=ADDRESS, listeners=(listener,))
    return nginx.NginxGenerator(ABLE).generate(gateway).file_set


@contextlib.asynccontextmanager
async def agent(control_plane: ControlPlane, directory: Path) -> AsyncIterator[None]:
    async with running(main.options_from_environment(control_plane.environment(directory))):
        await control_plane.until(lambda report: bool(report.instances))
        yield
