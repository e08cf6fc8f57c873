"""A controller and a data plane outside of a cluster, by the commands of the documentation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import patience, peers
from fakes.document_steps import steps_of
from fakes.installation import apply
from fakes.kinds import gateway_api_definitions
from fakes.kube_apiserver import PROGRAM, KubeApiserver
from fakes.machines import CUT, POSSIBLE, Machine
from fakes.patience import until
from fakes.process import Etcd
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tasks" / "try-from-workstation.md"
BACKEND = "192.0.2.1"

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.peers]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KubeApiserver]:
    """A kube-apiserver on a machine of its own, which is the workstation, too."""
    if not POSSIBLE:
        pytest.skip(f"namespaces {CUT}")
    if Etcd.binary() is None:
        pytest.skip("no etcd on this machine")
    binary = peers.binary(*PROGRAM)
    with contextlib.ExitStack() as stack:
        machine = Machine("workstation")
        stack.callback(machine.close)
        machine.run("ip", "addr", "add", f"{BACKEND}/32", "dev", "lo")
        stack.enter_context(machine.entered())
        etcd = Etcd(tmp_path / "etcd")
        stack.callback(etcd.kill)
        etcd.start(tmp_path / "etcd.log")
        (tmp_path / "api").mkdir()
        server = KubeApiserver(binary, tmp_path / "api", etcd.address)
        stack.callback(server.kill)
        server.start(tmp_path / "api.log")
        yield server


class Workstation:
    """A shell with the names of the page."""

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        self._directory = directory
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        (directory / "charts").symlink_to(ROOT / "charts")

    def words(self, commands: str) -> list[str]:
        """Return a command that runs commands of the page."""
        gatehouse = f'gatehouse() {{ "{sys.executable}" -m gatehouse "$@"; }}\n'
        return ["bash", "-euc", gatehouse + commands]

    async def run(self, commands: str) -> str:
        """Run commands to their end. Return their output."""
        process = await asyncio.create_subprocess_exec(
            *self.words(commands),
            cwd=self._directory,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    @contextlib.contextmanager
    def running(self, commands: str) -> Iterator[None]:
        """Run a command that does not end by itself, as in a terminal of its own."""
        with (self._directory / "log").open("ab") as log:
            process = subprocess.Popen(
                self.words(commands),
                cwd=self._directory,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield
        finally:
            # Ctrl-C of a terminal reaches the whole group.
            os.killpg(process.pid, signal.SIGINT)
            process.wait(patience.SECONDS)


def route() -> list[dict[str, Any]]:
    """Return a route with a backend on the workstation."""
    metadata = {"name": "app", "namespace": "default"}
    return [
        {"kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}},
        {
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "app"}},
            "addressType": "IPv4",
            "ports": [{"port": 9080}],
            "endpoints": [{"addresses": [BACKEND], "conditions": {"ready": True}}],
        },
        {
            "kind": "HTTPRoute",
            "metadata": metadata,
            "spec": {
                "parentRefs": [{"name": "web"}],
                "rules": [{"backendRefs": [{"name": "app", "port": 80}]}],
            },
        },
    ]


@pytest.fixture
async def backend(cluster: KubeApiserver) -> AsyncIterator[None]:
    async with echo.serve_echo({(BACKEND, 9080): "app"}):
        yield


async def test_gateway_of_a_cluster_is_served_on_a_workstation(
    cluster: KubeApiserver, backend: None, tmp_path: Path
) -> None:
    prepare, controller, create, agent, request, remove = steps_of(PAGE).values()
    (tmp_path / "home").mkdir()
    workstation = Workstation(tmp_path / "home", cluster.kubeconfig)
    async with kube.Client.from_kubeconfig(cluster.kubeconfig) as client:
        for definition in gateway_api_definitions():
            await client.create(resources.DEFINITIONS, definition)
        await workstation.run(prepare)
        with workstation.running(controller):
            await workstation.run(create)
            await apply(client, route())
            with workstation.running(agent):
                assert "app" in await workstation.run(request)
            await workstation.run(remove)
            await until(lambda: _is_gone(client))


async def _is_gone(client: kube.Client) -> bool:
    return not (await client.list(resources.GATEWAYS, "default")).items
