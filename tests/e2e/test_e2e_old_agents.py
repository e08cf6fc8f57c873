"""An agent v2 with a real NGINX under the real controller: objects in, traffic out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest

from fakes.agent_v2 import AgentV2, OldNginx, channel
from fakes.cluster_without_pods import Cluster, client, cluster, give_address, token
from fakes.installation import apply, hello, holds, route
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.controller import options as controller_options
from gatehouse.kube import client as kube

__all__ = ["client", "cluster"]

pytestmark = pytest.mark.process

MARKED = {"set": [{"name": "X-Backend", "value": "marked"}]}


def channel_to(cluster: Cluster) -> grpc.aio.Channel:
    return channel(cluster.port, cluster.state.pki.ca().cert, controller_options.SERVER_NAME)


@pytest.fixture
async def nginx(tmp_path: Path) -> AsyncIterator[OldNginx]:
    result = OldNginx(tmp_path)
    async with result.running():
        yield result


def gateway(port: int) -> list[dict[str, Any]]:
    """Return the example objects with a Gateway on `port`."""
    objects = hello()
    objects[0]["spec"]["listeners"][0]["port"] = port
    return objects


async def answers(port: int, path: str = "/", backend: str = "app") -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as response,
        ):
            return response.headers.get("X-Backend") == backend
    return False


async def test_old_agent_serves_its_gateway_after_control_plane_restart(
    cluster: Cluster, client: kube.Client, nginx: OldNginx, backends: None
) -> None:
    port = free_port()
    async with cluster.controller():
        await apply(client, gateway(port))
        await give_address(client, "web")
        grpc_channel = channel_to(cluster)
        agent = AgentV2(grpc_channel, await token(client, "web"), nginx.apply, nginx.details)
        agent.configuration = nginx.configuration
        async with agent.connected():
            await holds(client, "Gateway", "web", "Programmed")
            await until(lambda: answers(port))
            assert not (nginx.directory / "mime.types").exists()
    async with cluster.controller(), agent.connected():
        # It does not register again; its regular report only names its NGINX.
        await agent.send_report()
        changed = {"type": "ResponseHeaderModifier", "responseHeaderModifier": MARKED}
        await client.create(resources.HTTP_ROUTES, route("sub", "/sub", filters=[changed]))
        await holds(client, "HTTPRoute", "sub", "Accepted")
        await until(lambda: answers(port, "/sub", "marked"))
        assert len(agent.uploads) >= 2
    await grpc_channel.close()


async def test_port_in_use_fails_one_listener_until_it_is_free(
    cluster: Cluster, client: kube.Client, nginx: OldNginx, backends: None
) -> None:
    port = free_port()
    async with cluster.controller(), channel_to(cluster) as grpc_channel:
        await apply(client, gateway(port))
        await give_address(client, "web")
        agent = AgentV2(grpc_channel, await token(client, "web"), nginx.apply, nginx.details)
        async with agent.connected():
            await holds(client, "Gateway", "web", "Programmed")
            await until(lambda: answers(port))
            # Something else has the port that a new listener wants.
            taken = await asyncio.start_server(lambda _r, _w: None, "0.0.0.0", 0)
            more = {"name": "taken", "port": taken.sockets[0].getsockname()[1], "protocol": "HTTP"}
            listeners = gateway(port)[0]["spec"]["listeners"]
            patch = {"spec": {"listeners": [*listeners, more]}}
            await client.patch(resources.GATEWAYS, "web", patch, "default")

            async def programmed() -> dict[str, Any]:
                result = await client.get(resources.GATEWAYS, "web", "default")
                return {
                    listener["name"]: condition
                    for listener in result["status"]["listeners"]
                    for condition in listener["conditions"]
                    if condition["type"] == "Programmed"
                }

            async def rejected() -> bool:
                return "in use" in (await programmed()).get("taken", {"message": ""})["message"]

            await until(rejected)
            assert (await programmed())["http"]["status"] == "True"
            assert await answers(port)
            taken.close()
            await taken.wait_closed()

            async def recovered() -> bool:
                return bool((await programmed())["taken"]["status"] == "True")

            await until(recovered)


async def test_token_of_wrong_audience_or_unknown_account_is_rejected(
    cluster: Cluster, client: kube.Client, nginx: OldNginx
) -> None:
    async with cluster.controller(), channel_to(cluster) as grpc_channel:
        await apply(client, hello())
        await give_address(client, "web")
        elsewhere = await token(client, "web", audience="another-audience")
        await until(lambda: _exists(client, "default"))
        stranger, _ = await client.create_token(
            "default", "default", [controller_options.SERVER_NAME]
        )
        for bad, code in (
            (elsewhere, grpc.StatusCode.UNAUTHENTICATED),
            (stranger, grpc.StatusCode.UNAVAILABLE),
        ):
            agent = AgentV2(grpc_channel, bad, nginx.apply, nginx.details)
            assert await _status_of_server(agent) == code
            assert agent.commands == []


async def _status_of_server(agent: AgentV2) -> grpc.StatusCode:
    """Return the status with which the server ends the stream of an agent."""
    async with agent.connected(registers=False):
        return await agent.ended()


async def _exists(client: kube.Client, account: str) -> bool:
    with contextlib.suppress(kube.NotFound):
        return bool(await client.get(resources.SERVICE_ACCOUNTS, account, "default"))
    return False
