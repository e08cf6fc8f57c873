"""Things are killed while traffic goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal

import aiohttp
import pytest

from fakes.installation import (
    Installation,
    address,
    apply,
    get,
    hello,
    holds,
    route,
    traffic,
)
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import process_records

pytestmark = pytest.mark.process


async def _assert_change_is_served(client: kube.Client, where: str, path: str) -> None:
    await client.create(resources.HTTP_ROUTES, route(path.strip("/"), f"{path}/sub"))
    await holds(client, "HTTPRoute", path.strip("/"), "Accepted")
    assert await get(where, f"{path}/sub") == (200, "app")
    await client.delete(resources.HTTP_ROUTES, path.strip("/"), "default")


@pytest.mark.parametrize("part", ["apiserver", "controller", "node"])
async def test_traffic_continues_while_a_process_of_the_installation_is_killed(
    installation: Installation, client: kube.Client, backends: None, part: str
) -> None:
    await apply(client, hello())
    where = await address(client)
    agent, nginx = installation.agent(), installation.nginx()
    async with traffic(where) as answers:
        before = installation.part(part)
        before.signal(signal.SIGKILL)

        async def restarted() -> bool:
            record = process_records.recorded(installation.state / "run" / f"{part}.json")
            return record is not None and record != before

        await until(restarted)
        async with installation.client() as fresh:
            await _assert_change_is_served(fresh, where, f"/after-{part}")
    assert answers.keys() == {"200"}
    assert (installation.agent(), installation.nginx()) == (agent, nginx)


@pytest.mark.long
async def test_hung_controller_is_reported_and_replaced(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    """It is killed 30 s after its last heartbeat."""
    await apply(client, hello())
    where = await address(client)
    hung = installation.part("controller")
    async with traffic(where) as answers:
        hung.signal(signal.SIGSTOP)

        async def is_replaced() -> bool:
            record = process_records.recorded(installation.state / "run" / "controller.json")
            return record is not None and record != hung

        await until(is_replaced)
        await _assert_change_is_served(client, where, "/after-hung")
    assert answers.keys() == {"200"}
    lines = installation.output.read_text().splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    killed = [entry for entry in entries if entry["event"] == "hung process killed"]
    assert [(entry["part"], entry["pid"]) for entry in killed] == [("controller", hung.pid)]


async def test_traffic_continues_while_the_agent_is_killed(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    agent, nginx = installation.agent(), installation.nginx()
    async with traffic(where) as answers:
        agent.signal(signal.SIGKILL)

        async def adopted() -> bool:
            result = [
                process_records.recorded(p)
                for p in installation.state.glob("node/pods/*/process.json")
            ]
            return any(record is not None and record != agent for record in result)

        await until(adopted)
        await _assert_change_is_served(client, where, "/after-agent")
    assert answers.keys() == {"200"}
    assert installation.nginx() == nginx


async def test_traffic_survives_a_killed_up_and_the_next_up_adopts_processes(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    agent, nginx = installation.agent(), installation.nginx()
    assert installation.process is not None
    async with traffic(where) as answers:
        installation.process.kill()
        installation.process.wait()
        installation.start()
        async with installation.client() as fresh:
            await _assert_change_is_served(fresh, where, "/after-up")
    assert answers.keys() == {"200"}
    assert (installation.agent(), installation.nginx()) == (agent, nginx)


@pytest.mark.long
async def test_restart_keeps_objects_and_addresses_and_stops_all_processes(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    agent, nginx = installation.agent(), installation.nginx()
    assert await asyncio.to_thread(installation.stop) == 0
    assert not agent.alive()
    assert process_records.start_time(nginx) is None
    installation.start()
    async with installation.client() as fresh:
        await until(lambda: _reachable(where))
        assert await address(fresh) == where


async def _reachable(where: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        return await get(where) == (200, "app")
    return False


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
async def test_deleted_pod_is_replaced(
    installation: Installation, client: kube.Client, backends: None, killed: bool
) -> None:
    """Also if it is deleted while the node does not run."""
    await apply(client, hello())
    where = await address(client)

    async def is_alone() -> bool:
        """Return whether the Pod of an earlier test is gone."""
        return len((await client.list(resources.PODS)).items) == 1

    await until(is_alone)
    before = (await client.list(resources.PODS)).items[0]
    agent = installation.agent()
    node = installation.part("node")
    if killed:
        node.signal(signal.SIGSTOP)
    await client.delete(resources.PODS, before["metadata"]["name"], before["metadata"]["namespace"])
    if killed:
        node.signal(signal.SIGKILL)

    async def replaced() -> bool:
        pods = (await client.list(resources.PODS)).items
        uids = {pod["metadata"]["uid"] for pod in pods}
        ready = [
            condition["status"]
            for pod in pods
            for condition in pod.get("status", {}).get("conditions", ())
            if condition["type"] == "Ready"
        ]
        return before["metadata"]["uid"] not in uids and ready == ["True"]

    await until(replaced)
    assert not agent.alive()
    await until(lambda: _reachable(where))
