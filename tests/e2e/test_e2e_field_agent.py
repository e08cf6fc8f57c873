"""NGINX's own agents, v3 and v2, with a real NGINX: objects in, traffic out."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.cluster_without_pods import (
    SUFFIX,
    Cluster,
    client,
    cluster,
    give_address,
    token,
)
from fakes.durations import last
from fakes.field_agent import FieldAgent, program
from fakes.installation import BAD_SNIPPETS_FILTER, apply, condition, hello, holds, route
from fakes.kinds import resource_of
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import pki

__all__ = ["client", "cluster"]

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.peers]


class World:
    """A Gateway on its own port, served by the agent."""

    agent: FieldAgent
    token: Path
    """File with the token of the agent."""

    def __init__(self, cluster: Cluster, client: kube.Client, port: int) -> None:
        self.cluster = cluster
        self.client = client
        self.port = port
        self._controller = contextlib.AsyncExitStack()

    async def start_controller(self) -> None:
        """Run the control plane."""
        await self._controller.enter_async_context(self.cluster.controller(snippets=True))

    async def stop_controller(self) -> None:
        """End the control plane."""
        await self._controller.aclose()

    async def add(self, name: str, **rule: Any) -> None:
        """Make a route of the path ``/<name>`` that marks its answers with its name."""
        marked = {"set": [{"name": "X-Route", "value": name}]}
        filters = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": marked}]
        filters += rule.pop("filters", [])
        manifest = route(name, f"/{name}", filters=filters, **rule)
        await self.client.create(resources.HTTP_ROUTES, manifest)

    async def answers(self, name: str) -> bool:
        """Tell whether the route answers."""
        with contextlib.suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}/{name}") as response,
            ):
                return response.headers.get("X-Route") == name
        return False

    async def programmed(self) -> tuple[str, str, str]:
        """Return status, reason and message of the Gateway's Programmed condition."""
        result = await condition(self.client, "Gateway", "web", "Programmed")
        return (result["status"], result["reason"], result["message"]) if result else ("", "", "")

    async def not_programmed(self) -> str:
        """Return why the Gateway is not Programmed; empty if it is."""
        status, _, message = await self.programmed()
        return message if status == "False" else ""

    def package_files_remain(self) -> bool:
        """Tell whether files of NGINX's package remain that the main file does not include.

        v2 removes those that its NGINX read before.
        """
        names = ("mime.types", "conf.d/default.conf")
        return all((self.agent.nginx_directory / name).exists() for name in names)


only_v2 = pytest.mark.parametrize("world", [2], ids=["v2"], indirect=True)
only_v3 = pytest.mark.parametrize("world", [3], ids=["v3"], indirect=True)

ACCOUNT = f"web-{SUFFIX}"


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
async def world(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    client: kube.Client,
    backends: None,
    tmp_path: Path,
) -> AsyncIterator[World]:
    program(request.param)
    port = free_port()
    world = World(cluster, client, port)
    await world.start_controller()
    try:
        gateway = hello()
        gateway[0]["spec"]["listeners"][0]["port"] = port
        await apply(client, gateway)
        await give_address(client, "web")
        settings = cluster.environment(tmp_path / "settings", "pod", await token(client, "web"))
        world.token = Path(settings["NGINX_AGENT_COMMAND_AUTH_TOKENPATH"])
        world.agent = FieldAgent(tmp_path / "plane", settings, free_port(), request.param)
        async with world.agent.running():
            yield world
    finally:
        await world.stop_controller()


async def test_first_configuration_and_twenty_changes_are_served(world: World) -> None:
    await holds(world.client, "Gateway", "web", "Programmed")
    for name in (f"r{number}" for number in range(20)):
        await world.add(name)
        await until(partial(world.answers, name))
    assert world.package_files_remain() == (world.agent.version == 3)


async def test_rejected_filter_is_left_out_with_nginx_message(world: World) -> None:
    await world.add("good")
    await until(lambda: world.answers("good"))
    await world.client.create(resource_of("SnippetsFilter"), BAD_SNIPPETS_FILTER)
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "bad"}
    await world.add("bad", filters=[{"type": "ExtensionRef", "extensionRef": reference}])

    await world.add("beside")
    await until(lambda: world.answers("beside"))
    assert await world.answers("good")

    async def rejected() -> dict[str, Any] | None:
        snippets_filter = await world.client.get(resource_of("SnippetsFilter"), "bad", "default")
        entries = snippets_filter["status"]["controllers"]
        conditions = (reported for entry in entries for reported in entry["conditions"])
        return next((reported for reported in conditions if reported["status"] == "False"), None)

    result = await until(rejected)
    assert result["type"] == "Accepted"
    assert result["message"].startswith("not served by Gateway default/web: rejected by nginx/")
    assert 'unknown directive "not_a_directive"' in result["message"]
    status, _, message = await world.programmed()
    assert (status, "SnippetsFilter default/bad" in message) == ("True", True)


async def test_restarted_agent_serves_changes_made_while_it_was_down(world: World) -> None:
    await holds(world.client, "Gateway", "web", "Programmed")
    await world.agent.kill("agent")
    await world.add("meanwhile")
    await world.agent.start_agent()
    await until(lambda: world.answers("meanwhile"))
    await holds(world.client, "Gateway", "web", "Programmed")


async def test_gateway_is_not_programmed_while_its_nginx_is_down(
    world: World,
) -> None:
    await world.add("before")
    await until(lambda: world.answers("before"))
    await holds(world.client, "Gateway", "web", "Programmed")
    # v2 describes only processes that started after its last description. It knows both the start
    # of the system and that of a process in whole seconds.
    await last(2.5)
    await world.add("later")
    await until(lambda: world.answers("later"))
    await holds(world.client, "Gateway", "web", "Programmed")
    await world.agent.kill("nginx")
    assert "NGINX is not healthy" in await until(world.not_programmed)
    await world.add("meanwhile")
    # v3 would end itself if it were asked now, and v2 would report a success. So both are asked
    # when NGINX runs.
    await last(3)
    assert world.agent.alive("agent")
    assert "NGINX is not healthy" in await world.not_programmed()
    # A new agent has nothing to describe, or an NGINX without a master.
    await world.agent.kill("agent")
    await world.agent.start_agent()
    await last(8)
    assert world.agent.alive("agent")
    assert await world.not_programmed()
    await world.agent.end_workers()
    await world.agent.start_nginx()
    await until(lambda: world.answers("meanwhile"))
    await holds(world.client, "Gateway", "web", "Programmed")


async def test_gateway_is_not_programmed_while_all_processes_of_its_nginx_are_gone(
    world: World,
) -> None:
    await world.add("before")
    await until(lambda: world.answers("before"))
    await holds(world.client, "Gateway", "web", "Programmed")
    await world.agent.kill("nginx")
    await world.agent.end_workers()
    assert not await world.answers("before")
    assert "NGINX is not healthy" in await until(world.not_programmed)
    await world.add("meanwhile")
    await world.agent.start_nginx()
    await until(lambda: world.answers("meanwhile"))
    await holds(world.client, "Gateway", "web", "Programmed")
    assert world.agent.alive("agent")


@only_v3
async def test_new_token_in_file_is_used_without_restart(world: World) -> None:
    await holds(world.client, "Gateway", "web", "Programmed")
    good = world.token.read_text()
    world.token.write_text("not a token")
    await until(world.not_programmed)
    await world.add("meanwhile")
    world.token.write_text(good)
    await until(lambda: world.answers("meanwhile"))
    await holds(world.client, "Gateway", "web", "Programmed")
    assert world.agent.alive("agent")


@only_v2
async def test_rejected_token_is_replaced_by_restart_of_agent(world: World) -> None:
    await world.add("before")
    await until(lambda: world.answers("before"))
    good = world.token.read_text()
    await world.agent.kill("agent")
    world.token.write_text("not a token")
    world.agent.write_config()
    await world.agent.start_agent()
    await until(world.not_programmed)
    await world.add("meanwhile")
    await last(3)
    assert world.agent.alive("agent")
    assert await world.answers("before")
    assert not await world.answers("meanwhile")
    await world.agent.kill("agent")
    world.token.write_text(good)
    world.agent.write_config()
    await world.agent.start_agent()
    await until(lambda: world.answers("meanwhile"))
    await holds(world.client, "Gateway", "web", "Programmed")


@only_v2
async def test_agent_with_revoked_token_is_denied_by_a_new_control_plane(world: World) -> None:
    await world.add("before")
    await until(lambda: world.answers("before"))
    account = await world.client.get(resources.SERVICE_ACCOUNTS, ACCOUNT, "default")
    await world.stop_controller()
    await world.client.delete(resources.SERVICE_ACCOUNTS, ACCOUNT, "default")
    await world.start_controller()
    await until(world.not_programmed)
    assert await world.answers("before")
    world.token.write_text(await token(world.client, "web"))
    created = await world.client.get(resources.SERVICE_ACCOUNTS, ACCOUNT, "default")
    assert created["metadata"]["uid"] != account["metadata"]["uid"]
    world.agent.write_config()
    await world.agent.kill("agent")
    await world.agent.start_agent()
    await world.add("meanwhile")
    await until(lambda: world.answers("meanwhile"))
    await holds(world.client, "Gateway", "web", "Programmed")


async def test_renewed_server_certificate_is_accepted(world: World) -> None:
    await holds(world.client, "Gateway", "web", "Programmed")
    pair = world.cluster.state.pki.leaf(pki.CHANNEL)
    before = pair.cert.read_bytes()
    pair.cert.unlink()
    world.cluster.state.pki.ensure()
    assert pair.cert.read_bytes() != before
    await world.add("after-renewal")
    await until(lambda: world.answers("after-renewal"))
    await world.agent.kill("agent")
    await world.agent.start_agent()
    await world.add("new-connection")
    await until(lambda: world.answers("new-connection"))


async def test_traffic_goes_on_without_control_plane_and_agent(world: World) -> None:
    await world.add("before")
    await until(lambda: world.answers("before"))
    await world.stop_controller()
    assert await world.answers("before")
    await world.agent.kill("agent")
    assert await world.answers("before")
    await world.add("meanwhile")
    await world.start_controller()
    await world.agent.start_agent()
    await until(lambda: world.answers("meanwhile"))
    await holds(world.client, "Gateway", "web", "Programmed")
    assert world.package_files_remain() == (world.agent.version == 3)
    assert (world.agent.nginx_directory / "nginx.conf").exists()
