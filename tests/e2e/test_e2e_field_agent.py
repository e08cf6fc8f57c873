"""NGINX's own agent v3 with a real NGINX under the real controller: objects in, traffic out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.cluster_without_pods import Cluster, client, cluster, give_address, token
from fakes.field_agent import FieldAgent, program
from fakes.installation import apply, condition, hello, holds, route, until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone.free_ports import free_port

__all__ = ["client", "cluster"]

pytestmark = [pytest.mark.process, pytest.mark.long]

SNIPPET = {
    "apiVersion": "gateway.nginx.org/v1alpha1",
    "kind": "SnippetsFilter",
    "metadata": {"name": "bad", "namespace": "default"},
    "spec": {"snippets": [{"context": "http.server.location", "value": "not_a_directive on;"}]},
}


class World:
    """A Gateway on its own port, served by the agent."""

    def __init__(self, client: kube.Client, agent: FieldAgent, port: int) -> None:
        self.client = client
        self.agent = agent
        self.port = port

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


@pytest.fixture
async def world(
    cluster: Cluster, client: kube.Client, backends: None, tmp_path: Path
) -> AsyncIterator[World]:
    program()
    port = free_port()
    async with cluster.controller(snippets=True):
        gateway = hello()
        gateway[0]["spec"]["listeners"][0]["port"] = port
        await apply(client, gateway)
        await give_address(client, "web")
        told = cluster.environment(tmp_path / "told", "pod", await token(client, "web"))
        agent = FieldAgent(tmp_path / "plane", told, free_port())
        async with agent.running():
            yield World(client, agent, port)


async def test_first_configuration_and_twenty_changes_are_served(world: World) -> None:
    await holds(world.client, "Gateway", "web", "Programmed")
    for name in (f"r{number}" for number in range(20)):
        await world.add(name)
        await until(partial(world.answers, name))
    # What belongs to the package of NGINX is left alone.
    assert (world.agent.nginx_directory / "mime.types").exists()
    assert (world.agent.nginx_directory / "conf.d" / "default.conf").exists()


async def test_rejected_filter_is_left_out_with_nginx_message(world: World) -> None:
    await world.add("good")
    await until(lambda: world.answers("good"))
    await world.client.create(resources.SNIPPETS_FILTERS, SNIPPET)
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "bad"}
    await world.add("bad", filters=[{"type": "ExtensionRef", "extensionRef": reference}])

    await world.add("beside")
    await until(lambda: world.answers("beside"))
    assert await world.answers("good")

    async def rejected() -> dict[str, Any] | None:
        snippets_filter = await world.client.get(resources.SNIPPETS_FILTERS, "bad", "default")
        conditions = snippets_filter["status"]["controllers"][0]["conditions"]
        return next((each for each in conditions if each["status"] == "False"), None)

    result = await until(rejected)
    assert result["type"] == "Accepted"
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
    await world.agent.kill("nginx")
    assert "NGINX is not healthy" in await until(world.not_programmed)
    await world.add("meanwhile")
    # The agent would end itself if it were asked now; so it is asked when NGINX runs.
    await asyncio.sleep(3)
    assert world.agent.alive("agent")
    assert "NGINX is not healthy" in await world.not_programmed()
    # A new agent has nothing to describe, or an NGINX without a master.
    await world.agent.kill("agent")
    await world.agent.start_agent()
    await asyncio.sleep(8)
    assert world.agent.alive("agent")
    assert await world.not_programmed()
    await world.agent.end_workers()
    await world.agent.start_nginx()
    await until(lambda: world.answers("meanwhile"))
    await holds(world.client, "Gateway", "web", "Programmed")
