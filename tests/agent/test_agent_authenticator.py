"""An agent with NGINX and an authenticator sidecar, alone or beside a TLS connector."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.authority import Authority
from fakes.connector_agent import ADDRESS, agent, without
from fakes.loopback import free_port
from fakes.nginx_agent import spawn
from fakes.patience import until
from gatehouse.agent import timeouts
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.runtime import procfs
from gatehouse.sidecars.base import control

pytestmark = pytest.mark.process

ISSUER = f"https://{ADDRESS}:1"
"""URL of a port without a listener."""


def guarded(port: int, authority: Authority, cookie: str = "SESSION") -> FileSet:
    """Return a file set whose NGINX authenticates users with a provider that does not respond."""
    oidc = Oidc(
        owner="a/users", issuer=ISSUER, metadata_url=ISSUER, client_id="web", secret="client",
        trust="authority", callback="/callback", cookie=cookie,
    )  # fmt: skip
    action = ir.Redirect(path=ir.FullPath("/x"))
    route = ir.Route("a/b/0/0", ir.Match(), action, authentication=oidc)
    listener = ir_gateway.Listener(port, "HTTP", (ir.VirtualHost("", (route,)),))
    secrets = {"authority": authority.pem, "client": b"secret"}
    gateway = ir_gateway.GatewayConfiguration(
        GATEWAY,
        bind_address=ADDRESS,
        listeners=(listener,),
        secrets=tuple(
            ir_gateway.SecretFile(name, ir_gateway.SecretBytes(content))
            for name, content in secrets.items()
        ),
    )
    capabilities = nginx.NginxCapabilities.parse(
        "1.31.3", ("http_auth_request_module",), authenticators=True
    )
    return nginx.NginxGenerator(capabilities).generate(gateway).file_set


async def status(port: int) -> int:
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://{ADDRESS}:{port}/", allow_redirects=False) as response,
    ):
        return response.status


def authenticator_pid(directory: Path) -> int | None:
    return control.pid(directory / "run" / "authenticators")


def mode(directory: Path, name: str) -> int:
    (result,) = directory.glob(f"**/current/gatehouse/{name}")
    return result.stat().st_mode


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_authenticator_runs_while_configuration_needs_it(
    control_plane: ControlPlane,
    tmp_path: Path,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "sidecar_drain_seconds", lambda _drain: 0.5)
    port = free_port()
    async with agent(control_plane, tmp_path):
        await control_plane.programmed(without(port))
        assert authenticator_pid(tmp_path) is None
        await control_plane.programmed(guarded(port, authority))
        assert await status(port) == 503
        assert (
            "filter a/users: the provider is not available: https://127.0.0.1:1: "
            in (tmp_path / "run" / "authenticator.log").read_text()
        )
        assert mode(tmp_path, "secrets/client") & 0o077 == 0
        pid = authenticator_pid(tmp_path)
        assert pid is not None
        await control_plane.programmed(guarded(port, authority, cookie="OTHER"))
        assert authenticator_pid(tmp_path) == pid
        await control_plane.programmed(without(port))
        await until(lambda: not procfs.is_alive(pid))
        assert list((tmp_path / "run" / "authenticators").iterdir()) == []


async def test_config_rejected_by_authenticator_changes_nothing(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port = free_port()
    async with agent(control_plane, tmp_path):
        good = without(port)
        await control_plane.programmed(good)
        files = dict(guarded(port, authority).files)
        files["gatehouse/secrets/authority"] = File.make(
            "gatehouse/secrets/authority", "no certificate", secret=True
        )
        control_plane.server.publish(GATEWAY, FileSet(files.values()))
        report = await control_plane.until(lambda report: bool(report.error))
        assert "authenticator: filter a/users: gatehouse/secrets/authority: " in report.error
        assert await status(port) == 204


async def test_authenticator_survives_agent_kill_and_next_agent_restarts_it(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port = free_port()
    environ = control_plane.environment(tmp_path)
    with spawn(environ) as first:
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(guarded(port, authority))
        pid = authenticator_pid(tmp_path)
        assert pid is not None
        first.kill()
        await asyncio.to_thread(first.wait)
        await control_plane.until(lambda report: not report.instances)
        assert await status(port) == 503
    with spawn(environ) as second:
        await control_plane.until(lambda report: report.programmed)
        assert authenticator_pid(tmp_path) == pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: authenticator_pid(tmp_path) not in (None, pid))
        async with patience.limit():
            while await status(port) != 503:
                await patience.pause()
        fresh = authenticator_pid(tmp_path)
        assert fresh is not None
        second.terminate()
        assert await asyncio.to_thread(second.wait) == 0
        assert not procfs.is_alive(fresh)
