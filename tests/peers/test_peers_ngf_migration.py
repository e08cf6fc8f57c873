"""A Gateway moves from NGINX Gateway Fabric to Gatehouse by the commands of the documentation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes import kubectls, ngf_control_plane
from fakes.document_steps import steps_of
from fakes.durations import last
from fakes.installation import Installation, apply, get, hello, traffic
from fakes.machines import Machine, join
from fakes.ngf_control_plane import NGFControlPlane, NGFDataPlane
from fakes.patience import KUBECTL_TIMEOUT, until
from fakes.peer_differences import NGF_MAIN_FILE
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.peers]

PAGE = Path(__file__).parents[2] / "docs" / "tasks" / "migrate-from-ngf.md"
BACKEND, OLD = "192.0.2.1", "192.0.2.2"
SERVED_SECONDS = 2.0
"""Time of traffic after each step."""


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    """A machine with both control planes, and one with the data plane of the old Gateway."""
    ngf_control_plane.require()
    with contextlib.ExitStack() as stack:
        machines = Machine("new"), Machine("old")
        for machine in machines:
            stack.callback(machine.close)
        join(*machines)
        stack.enter_context(machines[0].entered())
        yield machines


class MigrationWorld:
    """A Gateway of NGINX Gateway Fabric beside a Gatehouse that has no Gateway yet."""

    def __init__(self, client: kube.Client, kubeconfig: Path) -> None:
        self._client, self._kubeconfig = client, kubeconfig

    async def run(self, commands: str) -> str:
        """Run commands of the page with kubectl. Return their output."""
        function = f'kubectl() {{ "{kubectls.newest()}" "$@"; }}\n'
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euc", function + commands),
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    async def accepted_by(self, *names: str) -> bool:
        """Return whether exactly these Gateways accept the route."""
        route = await self._client.get(resources.HTTP_ROUTES, "app", "default")
        accepted = [
            parent["parentRef"]["name"]
            for parent in route["status"]["parents"]
            for condition in parent["conditions"]
            if (condition["type"], condition["status"]) == ("Accepted", "True")
            and condition["observedGeneration"] == route["metadata"]["generation"]
        ]
        return sorted(accepted) == sorted(names)


def manifests() -> list[dict[str, Any]]:
    """Return the objects of the old Gateway with a backend that both machines reach."""
    result = hello("nginx")
    for manifest in result:
        for endpoint in manifest.get("endpoints", ()):
            endpoint.update(addresses=[BACKEND], conditions={"ready": True})
    return result


@pytest.fixture
async def world(machines: tuple[Machine, Machine]) -> AsyncIterator[MigrationWorld]:
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gh-")))
        source = ngf_control_plane.unpack_source(directory / "source")
        await stack.enter_async_context(echo.serve_echo({(BACKEND, 9080): "app"}))
        (directory / "state").mkdir(0o700)
        installation = Installation(directory / "state")
        installation.start()
        stack.callback(installation.stop)
        client = await stack.enter_async_context(installation.client())
        control_plane = NGFControlPlane(directory, source, installation.kubeconfig)
        await control_plane.install(client)
        await stack.enter_async_context(control_plane.running())
        await apply(client, manifests())
        plane = NGFDataPlane(directory / "plane", source, machines[1])
        await plane.configure(client, "web")
        main = plane.etc_nginx / "nginx.conf"
        for line in NGF_MAIN_FILE.values:
            main.write_text(main.read_text().replace(line, ""))
        await stack.enter_async_context(plane.running())
        await until(partial(is_served, OLD))
        yield MigrationWorld(client, installation.kubeconfig)


async def is_served(at: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        return await get(at) == (200, "app")
    return False


async def test_gateway_moves_by_the_steps_of_the_page_without_a_lost_request(
    world: MigrationWorld,
) -> None:
    create, attach, move, remove = steps_of(PAGE).values()
    async with traffic(OLD) as at_old:
        await world.run(create)
        await last(SERVED_SECONDS)
        assert "web\nweb-new\n" in await world.run(attach)
        await until(partial(world.accepted_by, "web", "web-new"))
        new = await world.run(move)
        await until(partial(is_served, new))
        async with traffic(new) as at_new:
            await last(SERVED_SECONDS)
    # Clients have moved.
    async with traffic(new) as after_removal:
        await world.run(remove)
        await until(partial(world.accepted_by, "web-new"))
        await last(SERVED_SECONDS)
    print(at_old, at_new, after_removal)
    for statuses in (at_old, at_new, after_removal):
        assert set(statuses) == {"200"}, (at_old, at_new, after_removal)
        assert statuses["200"] > 100


async def test_gateway_with_changed_class_gets_another_address(world: MigrationWorld) -> None:
    change = {"spec": {"gatewayClassName": "gatehouse-nginx"}}
    await world.run(f"kubectl patch gateway web --type=merge -p '{json.dumps(change)}'")
    await world.run(f"kubectl wait --for=condition=Programmed {KUBECTL_TIMEOUT} gateway/web")
    new = await world.run(steps_of(PAGE)["Move the clients"].replace("web-new", "web"))
    assert new != OLD
    await until(partial(is_served, new))
    # NGINX Gateway Fabric leaves the objects of its data plane.
    await last(SERVED_SECONDS)
    assert "web-nginx" in await world.run("kubectl get deployment web-nginx")
