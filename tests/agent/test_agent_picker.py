"""An agent with NGINX and a picker client: Pods change, and the picker client dies."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.connector_agent import ADDRESS, agent, without
from fakes.endpoint_pickers import Picker, picking
from fakes.loopback import free_port
from fakes.model_pool import Models
from fakes.patience import until
from gatehouse.agent import timeouts
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.runtime import procfs
from gatehouse.sidecars.base import control
from gatehouse.sidecars.picker import config

pytestmark = pytest.mark.process


class Pool:
    """A pool of model servers behind NGINX."""

    def __init__(self, models: Models, picker_port: int) -> None:
        self.models = models
        self.port = free_port()
        self._picker_port = picker_port

    def files(self, *names: str) -> FileSet:
        """Return a file set whose pool has these model servers."""
        endpoints = [self.models.endpoints[name] for name in names]
        clusters = (
            ir.Cluster(
                "c-pool",
                tuple(sorted(ir.Endpoint(one.address, one.port) for one in endpoints)),
                picker=ir.EndpointPicker("c-picker"),
            ),
            ir.Cluster("c-picker", (ir.Endpoint(ADDRESS, self._picker_port),), "grpc"),
        )
        route = ir.Route("a/b/0/0", ir.Match(), ir.Forward((ir.Backend("c-pool"),)))
        listener = ir_gateway.Listener(self.port, "HTTP", (ir.VirtualHost("", (route,)),))
        gateway = ir_gateway.GatewayConfiguration(
            GATEWAY, bind_address=ADDRESS, listeners=(listener,), clusters=clusters
        )
        able = nginx.NginxCapabilities.parse("1.31.3", named_endpoints=True, pickers=True)
        return nginx.NginxGenerator(able).generate(gateway).file_set

    async def ask(self) -> tuple[int, str]:
        """Return the status and the model server of a request."""
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"http://{ADDRESS}:{self.port}/", data=b"{}") as response,
        ):
            return response.status, response.headers.get("X-Model", "")


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    models = Models()
    # It names no endpoint, so that the picker client chooses one.
    async with models.serve("a", "b"), picking(Picker("none"), ADDRESS, None) as port:
        yield Pool(models, port)


def picker_pid(directory: Path) -> int | None:
    return control.pid(directory / "run" / "pools")


async def test_pods_change_without_a_reload(
    control_plane: ControlPlane, tmp_path: Path, pool: Pool
) -> None:
    async with agent(control_plane, tmp_path):
        await control_plane.programmed(pool.files("a"))
        assert await pool.ask() == (200, "a")
        before = revisions(tmp_path)
        for names in (("b",), ("a",), ("a", "b")):
            await control_plane.programmed(pool.files(*names))
            assert {await pool.ask() for _ in range(20)} == {(200, name) for name in names}
        assert revisions(tmp_path) == before
        # A pool without endpoints is another configuration of NGINX.
        await control_plane.programmed(pool.files())
        assert (await pool.ask())[0] == 503
        assert revisions(tmp_path) != before


def revisions(directory: Path) -> set[str]:
    """Return the current revision, which a reload replaces."""
    return {str(path.readlink()) for path in directory.glob("**/current")}


async def test_picker_client_runs_while_a_pool_needs_it(
    control_plane: ControlPlane, tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "sidecar_drain_seconds", lambda _drain: 0.5)
    async with agent(control_plane, tmp_path):
        await control_plane.programmed(without(pool.port))
        assert picker_pid(tmp_path) is None
        await control_plane.programmed(pool.files("a"))
        pid = picker_pid(tmp_path)
        assert pid is not None
        await control_plane.programmed(without(pool.port))
        await until(lambda: not procfs.is_alive(pid))
        assert list((tmp_path / "run" / "pools").iterdir()) == []


async def test_picker_client_that_dies_is_replaced(
    control_plane: ControlPlane, tmp_path: Path, pool: Pool
) -> None:
    async with agent(control_plane, tmp_path):
        await control_plane.programmed(pool.files("a"))
        # The next one must have the endpoints that changed without a reload.
        await control_plane.programmed(pool.files("b"))
        pid = picker_pid(tmp_path)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

        async def is_served() -> bool:
            return await pool.ask() == (200, "b")

        await until(is_served)
        assert picker_pid(tmp_path) != pid


async def test_configuration_that_the_picker_client_rejects_changes_nothing(
    control_plane: ControlPlane, tmp_path: Path, pool: Pool
) -> None:
    async with agent(control_plane, tmp_path):
        await control_plane.programmed(without(pool.port))
        files = dict(pool.files("a").files.items())
        files[config.POOLS_FILE] = File.make(config.POOLS_FILE, b"[{}]")
        control_plane.server.publish(GATEWAY, FileSet(files.values()))
        report = await control_plane.until(lambda report: bool(report.error))
        assert "picker: gatehouse/pools.json: " in report.error
        assert (await pool.ask())[0] == 204
