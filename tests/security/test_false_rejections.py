"""An agent with a valid token of its own Gateway that rejects whatever it gets.

Its messages name files and ports that other Gateways have, too. A real NGINX serves another Gateway
of the same class, with the same parameters and routes, under traffic.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from fakes.agent_v2 import AgentV2, Config, OldNginx, channel
from fakes.cluster_without_pods import Cluster, client, cluster, give_address, token
from fakes.installation import apply, condition, hello, holds, route, traffic
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.controller.options import SERVER_NAME
from gatehouse.kube import client as kube

__all__ = ["client", "cluster"]

pytestmark = pytest.mark.process

VICTIM, ATTACKER = "web", "other"
PARAMETERS = {
    "apiVersion": "gateway.nginx.org/v1alpha2",
    "kind": "NginxProxy",
    "metadata": {"name": "shared", "namespace": "default"},
    "spec": {"disableHTTP2": True},
}


@pytest.fixture
async def nginx(tmp_path: Path) -> AsyncIterator[OldNginx]:
    result = OldNginx(tmp_path)
    async with result.running():
        yield result


def messages(port: int) -> tuple[str, ...]:
    """Return what NGINX would say about the shared file, routes, and the port of the victim."""
    return (
        'nginx: [emerg] unknown directive "x" in gatehouse/http.conf:1',
        f"nginx: [emerg] bind() to 0.0.0.0:{port} failed (98: Address already in use)",
        f"nginx: [emerg] invalid condition in gatehouse/servers/{port}-any-e3b0c442.conf:2",
        "nginx: [emerg] could not build map_hash, you should increase map_hash_bucket_size",
    )


async def test_false_rejections_change_nothing_of_another_gateway(
    cluster: Cluster, client: kube.Client, nginx: OldNginx, backends: None
) -> None:
    """Neither before nor after a restart of the controller."""
    ports = {VICTIM: free_port(), ATTACKER: free_port()}
    texts = messages(ports[VICTIM])
    endless_texts = itertools.cycle(texts)

    async def refuse(config: Config) -> str:
        return f"Config apply failed (test): {next(endless_texts)}"

    async def served(path: str) -> bool:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{ports[VICTIM]}{path}") as response,
        ):
            return response.status == 200

    async def is_rejected() -> bool:
        result = await condition(client, "Gateway", ATTACKER, "Programmed")
        return result is not None and "[emerg]" in result["message"]

    async def attack(start: str) -> None:
        """Add routes of both Gateways, which the attacker rejects. The other serves them."""
        rejected = len(attacker.apply_ids) + 2 * len(texts)
        names = [f"{start}-{number}" for number in range(len(texts))]
        for name in names:
            shared = route(name, f"/{name}")
            shared["spec"]["parentRefs"] = [{"name": gateway} for gateway in ports]
            await client.create(resources.HTTP_ROUTES, shared)
            await until(partial(served, f"/{name}"))
        await until(is_rejected)
        await until(lambda: len(attacker.apply_ids) >= rejected)
        await client.create(resources.HTTP_ROUTES, route(f"{start}-last", f"/{start}-last"))
        await until(lambda: served(f"/{start}-last"))
        programmed = await condition(client, "Gateway", VICTIM, "Programmed")
        assert programmed is not None
        assert programmed["status"] == "True"
        assert "left out" not in programmed["message"]
        assert [await served(f"/{name}") for name in names] == [True] * len(names)
        files = (nginx.directory / "gatehouse").rglob("*.conf")
        assert "http2 on" not in "".join(path.read_text() for path in files)

    async with channel(cluster.port, cluster.ca, SERVER_NAME) as opened, AsyncExitStack() as stack:
        async with cluster.controller():
            await create_gateways(client, ports)
            agent = AgentV2(opened, await token(client, VICTIM), nginx.apply, nginx.details)
            attacker = AgentV2(opened, await token(client, ATTACKER), refuse)
            async with agent.connected():
                await holds(client, "Gateway", VICTIM, "Programmed")
                await until(lambda: served("/"))
                answers = await stack.enter_async_context(traffic("127.0.0.1", port=ports[VICTIM]))
                async with attacker.connected():
                    await attack("first")
        async with cluster.controller(), agent.connected(), attacker.connected():
            # Agents do not register again, and describe their NGINX in a report.
            await agent.send_report()
            await attacker.send_report(details=True)
            await attack("restarted")
    assert set(answers) == {"200"}, answers


async def create_gateways(client: kube.Client, ports: dict[str, int]) -> None:
    """Create Gateways with the same parameters, and what both need."""
    _, *backend = hello()
    await client.create(resources.NGINX_PROXIES, PARAMETERS)
    for name, port in ports.items():
        gateway = hello()[0]
        gateway["metadata"]["name"] = name
        gateway["spec"]["listeners"][0]["port"] = port
        reference = {"group": "gateway.nginx.org", "kind": "NginxProxy", "name": "shared"}
        gateway["spec"]["infrastructure"] = {"parametersRef": reference}
        await apply(client, [gateway])
        await give_address(client, name)
    await apply(client, backend)
