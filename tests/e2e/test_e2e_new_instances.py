"""A new instance serves the good objects at once, while NGINX rejects another object."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.agent_command import agent
from fakes.cluster_without_pods import Cluster, client, cluster, give_address, token
from fakes.installation import apply, condition, hello, route, until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone.free_ports import free_port

__all__ = ["client", "cluster"]

pytestmark = [pytest.mark.process, pytest.mark.long]

REJECTED = {
    "apiVersion": "gateway.nginx.org/v1alpha1",
    "kind": "SnippetsFilter",
    "metadata": {"name": "bad", "namespace": "default"},
    "spec": {"snippets": [{"context": "http.server.location", "value": "not_a_directive on;"}]},
}
REFERENCE = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "bad"}


def objects(port: int) -> list[dict[str, Any]]:
    """Return a Gateway on a port, a good route, and a route that uses the rejected filter."""
    manifests = hello()
    manifests[0]["spec"]["listeners"][0]["port"] = port
    filters = [{"type": "ExtensionRef", "extensionRef": REFERENCE}]
    return [*manifests, route("good", "/good"), REJECTED, route("bad", "/bad", filters=filters)]


async def status(port: int, path: str) -> int:
    """Return the status of the response; 0 without a connection."""
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as response,
        ):
            return response.status
    return 0


@contextlib.asynccontextmanager
async def instance(
    cluster: Cluster, client: kube.Client, directory: Path, name: str, port: int
) -> AsyncIterator[None]:
    """Run an agent without earlier state until the good route is served."""
    own = directory / name
    environment = cluster.environment(own, name, await token(client, "web", name))
    async with agent(environment, own / "agent.log"):

        async def serves() -> bool:
            return await status(port, "/good") == 200

        await until(serves)
        assert await status(port, "/bad") == 500
        yield


async def test_new_instances_serve_good_routes_beside_a_rejected_one(
    cluster: Cluster, client: kube.Client, tmp_path: Path, backends: None
) -> None:
    port = free_port()
    async with cluster.controller(snippets=True):
        await apply(client, objects(port))
        await give_address(client, "web")
        # No instance has confirmed any version before.
        async with instance(cluster, client, tmp_path, "first", port):

            async def named() -> bool:
                found = await condition(client, "Gateway", "web", "Programmed")
                return bool(found and "SnippetsFilter default/bad" in found["message"])

            await until(named)
        async with instance(cluster, client, tmp_path, "second", port):
            pass
    # A new controller knows nothing of the rejection.
    async with (
        cluster.controller(snippets=True),
        instance(cluster, client, tmp_path, "third", port),
    ):
        await client.create(resources.HTTP_ROUTES, route("later", "/later"))

        async def served() -> bool:
            return await status(port, "/later") == 200

        await until(served)
        assert await status(port, "/bad") == 500
