"""Two controllers of which one leads, as processes, with a node and an API server of their own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from fakes import patience
from fakes.installation import (
    BACKEND,
    HOST_NET,
    address,
    apply,
    condition,
    get,
    hello,
    route,
    traffic,
)
from fakes.loopback import free_port
from fakes.patience import until
from fakes.process import ApiServer
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.runtime import procfs as agents
from gatehouse.standalone import echo, pki

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


class Replica:
    """A controller; all of them share the address that agents know, and the leader has it."""

    def __init__(self, server: ApiServer, agents_port: int) -> None:
        self.health = f"127.0.0.1:{free_port()}"
        channel = server.state.pki.leaf(pki.CHANNEL)
        self.process = gatehouse(
            server,
            *("controller", "--kubeconfig", str(server.state.controller_kubeconfig)),
            *("--agent-bind-address", f"127.0.0.1:{agents_port}"),
            *("--agent-advertise-address", f"127.0.0.1:{agents_port}"),
            *("--tls-cert-file", str(channel.cert), "--tls-private-key-file", str(channel.key)),
            *(
                "--agent-ca-file",
                str(server.state.pki.ca().cert),
                "--listener-address-mode",
                "load-balancer",
            ),
            *(
                "--leader-election-lease",
                "default/controller",
                "--health-bind-address",
                self.health,
            ),
        )

    async def asked(self, path: str) -> tuple[int, str]:
        """Ask one of its own endpoints."""
        with contextlib.suppress(aiohttp.ClientError):
            url = f"http://{self.health}{path}"
            async with aiohttp.ClientSession() as http, http.get(url) as response:
                return response.status, await response.text()
        return 0, ""

    async def ready(self) -> bool:
        return (await self.asked("/readyz"))[0] == 200

    async def leads(self) -> bool:
        return "gatehouse_controller_leader 1.0" in (await self.asked("/metrics"))[1]


def gatehouse(server: ApiServer, *arguments: str) -> subprocess.Popen[bytes]:
    with (server.state.directory / "processes.log").open("ab") as log:
        command = [sys.executable, "-m", "gatehouse", "--log-format", "json", *arguments]
        return subprocess.Popen(command, stdout=log, stderr=log)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with tempfile.TemporaryDirectory(prefix="gh-") as name:
        directory = Path(name) / "s"
        api_server = ApiServer(directory, "--node-dir", str(directory / "node"))
        api_server.state.node.mkdir()
        api_server.start()
        arguments = ("--kubeconfig", str(api_server.state.node_kubeconfig))
        pool = f"{HOST_NET}.0/25"
        node = gatehouse(
            api_server,
            "node",
            *arguments,
            "--dir",
            str(api_server.state.node),
            "--address-pool",
            pool,
        )
        try:
            yield api_server
        finally:
            node.terminate()
            node.wait(patience.SECONDS)
            api_server.stop()


async def agent_metric(where: str, name: str) -> float:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{where}:9113/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.mark.smoke
async def test_agents_follow_new_leader_without_reload(server: ApiServer) -> None:
    port = free_port()
    replicas = [Replica(server, port)]
    try:
        await until(replicas[0].leads)
        replicas.append(Replica(server, port))
        # A standby is Ready, and does not take the leader's address.
        await until(replicas[1].ready)
        assert await replicas[0].ready()
        assert not await replicas[1].leads()
        async with (
            kube.Client.from_kubeconfig(server.kubeconfig) as client,
            echo.serve_echo({BACKEND: "app"}),
        ):
            await _follow(client, server, replicas)
    finally:
        for replica in replicas:
            replica.process.kill()
            replica.process.wait()


async def _follow(client: kube.Client, server: ApiServer, replicas: list[Replica]) -> None:
    await apply(client, hello())
    where = await address(client)
    (pid,) = server.state.node.glob("pods/*/volumes/run/nginx.pid")

    async def settled() -> bool:
        """Return whether all upstreams have resolved endpoints and need no seeds for a reload."""
        return not list(server.state.node.glob("pods/*/volumes/*/current/seeds"))

    former = agents.children(int(pid.read_text()))
    await until(settled)

    async def replaced() -> bool:
        return agents.children(int(pid.read_text())).isdisjoint(former)

    await until(replaced)
    workers = agents.children(int(pid.read_text()))
    reloads = await agent_metric(where, "gatehouse_agent_reloads_total")
    leader, next_one = replicas
    async with traffic(where) as statuses:
        leader.process.send_signal(signal.SIGKILL)
        leader.process.wait()
        await until(next_one.leads)

        async def followed() -> bool:
            metrics = (await next_one.asked("/metrics"))[1]
            return "gatehouse_controller_connected_instances 1.0" in metrics

        await until(followed)
        assert await agent_metric(where, "gatehouse_agent_control_plane_connected") == 1
        await until(lambda: _programmed(client))
        assert await agent_metric(where, "gatehouse_agent_reloads_total") == reloads
        assert agents.children(int(pid.read_text())) == workers
        await client.create(resources.HTTP_ROUTES, route("after", "/after", "missing"))

        async def changed() -> bool:
            return (await get(where, "/after"))[0] == 500

        await until(changed)
        assert await agent_metric(where, "gatehouse_agent_reloads_total") == reloads + 1
    assert statuses.keys() == {"200"}


async def _programmed(client: kube.Client) -> bool:
    result = await condition(client, "Gateway", "web", "Programmed")
    return result is not None and result["status"] == "True"
