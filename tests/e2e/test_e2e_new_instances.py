"""A new instance becomes ready with the good objects only, while NGINX rejects another object."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.agent_command import agent
from fakes.cluster_without_pods import Cluster, client, cluster, give_address, token
from fakes.durations import pace
from fakes.installation import apply, condition, hello, route
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["client", "cluster"]

pytestmark = [pytest.mark.process, pytest.mark.long]

REJECTED = {
    "apiVersion": "gateway.nginx.org/v1alpha1",
    "kind": "SnippetsFilter",
    "metadata": {"name": "bad", "namespace": "default"},
    "spec": {"snippets": [{"context": "http.server.location", "value": "not_a_directive on;"}]},
}
RULES = 12
"""Number of good routes."""

REFERENCE = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "bad"}


def objects(port: int) -> list[dict[str, Any]]:
    """Return a Gateway on a port, a good route, and a route that uses the rejected filter."""
    manifests = hello()
    manifests[0]["spec"]["listeners"][0]["port"] = port
    filters = [{"type": "ExtensionRef", "extensionRef": REFERENCE}]
    return [*manifests, route("good", "/good"), REJECTED, route("bad", "/bad", filters=filters)]


def logging_to(directory: Path) -> list[dict[str, Any]]:
    """Return the filter with a log file, and a route that uses it.

    NGINX rejects it without a name of the object once the directory does not exist.
    """
    snippet = {"context": "http.server.location", "value": f"access_log {directory}/access.log;"}
    logging = {**REJECTED, "spec": {"snippets": [snippet]}}
    filters = [{"type": "ExtensionRef", "extensionRef": REFERENCE}]
    return [logging, route("bad", "/bad", filters=filters)]


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
                programmed = await condition(client, "Gateway", "web", "Programmed")
                return bool(programmed and "SnippetsFilter default/bad" in programmed["message"])

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


@contextlib.asynccontextmanager
async def watched(health: int, port: int) -> AsyncIterator[list[tuple[int, ...]]]:
    """Collect the statuses of all good routes while the health page says that it is ready."""
    statuses: list[tuple[int, ...]] = []

    async def watch() -> None:
        while True:
            if await status(health, "/readyz") == 200:
                paths = (f"/good-{number}" for number in range(RULES))
                statuses.append(tuple([await status(port, path) for path in paths]))
            await pace(0.005)

    task = asyncio.create_task(watch())
    try:
        yield statuses
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def is_served(port: int, path: str, expected: int = 200) -> None:
    """Wait until a path answers with a status."""

    async def served() -> bool:
        return await status(port, path) == expected

    await until(served)


def log_directory(cluster: Cluster) -> Path:
    """Create a directory in which the workers of any NGINX may write."""
    directory = Path(cluster.state.directory) / "log"
    directory.mkdir()
    directory.chmod(0o777)
    return directory


async def prepared(client: kube.Client, port: int, directory: Path) -> None:
    """Apply the Gateway, the good routes, and the route with a log file in a directory."""
    manifests = hello()
    manifests[0]["spec"]["listeners"][0]["port"] = port
    good = [route(f"good-{number}", f"/good-{number}") for number in range(RULES)]
    await apply(client, [*manifests, *good, *logging_to(directory)])
    await give_address(client, "web")


async def served_status(client: kube.Client) -> None:
    """Wait until the status of the route with the log file says that it is served."""

    async def accepted() -> bool:
        result = await condition(client, "HTTPRoute", "bad", "Accepted")
        return result is not None and result["status"] == "True"

    await until(accepted)


async def test_new_instance_is_ready_with_all_good_objects_or_not_at_all(
    cluster: Cluster, client: kube.Client, tmp_path: Path, backends: None
) -> None:
    """It is alone after a restart of the controller, and NGINX names no object."""
    port, directory = free_port(), log_directory(cluster)
    async with cluster.controller(snippets=True):
        await prepared(client, port, directory)
        environment = cluster.environment(
            tmp_path / "old", "old", await token(client, "web", "old")
        )
        async with agent(environment, tmp_path / "old.log"):
            await is_served(port, "/bad")
            await served_status(client)
    shutil.rmtree(directory)
    health = free_port()
    async with cluster.controller(snippets=True):
        environment = cluster.environment(
            tmp_path / "new", "new", await token(client, "web", "new")
        ) | {"GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}"}
        async with agent(environment, tmp_path / "new.log"), watched(health, port) as statuses:
            await is_served(port, "/bad", 500)
            await until(lambda: _enough(statuses))
    assert set(statuses) == {(200,) * RULES}


async def _enough(statuses: list[tuple[int, ...]]) -> bool:
    return len(statuses) > 10


async def test_serving_instance_gets_changes_when_nginx_rejects_an_object_that_it_serves(
    cluster: Cluster, client: kube.Client, tmp_path: Path, backends: None
) -> None:
    """The new controller cannot tell from any status what is rejected, and NGINX does not."""
    port, directory = free_port(), log_directory(cluster)
    health = free_port()
    async with contextlib.AsyncExitStack() as stack:
        async with cluster.controller(snippets=True):
            await prepared(client, port, directory)
            environment = cluster.environment(
                tmp_path / "pod", "pod", await token(client, "web", "pod")
            ) | {"GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}"}
            await stack.enter_async_context(agent(environment, tmp_path / "pod.log"))
            await is_served(port, "/bad")
            await served_status(client)
        shutil.rmtree(directory)
        await client.create(resources.HTTP_ROUTES, route("later", "/later"))
        statuses = await stack.enter_async_context(watched(health, port))
        async with cluster.controller(snippets=True):
            await is_served(port, "/later")
            await is_served(port, "/bad", 500)
            programmed = await condition(client, "Gateway", "web", "Programmed")
            assert programmed is not None
            assert "SnippetsFilter default/bad" in programmed["message"]
    assert set(statuses) == {(200,) * RULES}
