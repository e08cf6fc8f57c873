"""Two controllers as Pods of the chart's Deployment: Services send agents to the leader only."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import gatehouse
from fakes.builds import Build
from fakes.cluster import NAME, NAMESPACE, Cluster
from fakes.cluster_estate import (
    CLUSTER_MARKS,
    CONTROLLERS,
    add_route,
    is_ready,
    reachable,
    running_cluster,
    until_answered,
)
from fakes.installation import BACKEND, PORT, address, apply
from fakes.keepalive_load import Load
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.controller.leader_label import LABEL
from gatehouse.kube import client as kube
from gatehouse.standalone import echo, process_records
from gatehouse.standalone.node import pods

pytestmark = CLUSTER_MARKS


TAG = gatehouse.__version__


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster({TAG: Build(TAG, Path(sys.prefix))}) as result:
        yield result


class Controllers:
    """The Pods of the controllers' Deployment, and where their Service leads."""

    def __init__(self, cluster: Cluster, client: kube.Client) -> None:
        self._cluster = cluster
        self._client = client

    async def pods(self, selector: str = "") -> dict[str, dict[str, Any]]:
        labels = f"{CONTROLLERS}{selector}"
        result = await self._client.list(resources.PODS, NAMESPACE, label_selector=labels)
        return {item["metadata"]["name"]: item for item in result.items}

    async def ready(self) -> set[str]:
        return {name for name, pod in (await self.pods()).items() if is_ready(pod)}

    async def labelled(self) -> set[str]:
        return set(await self.pods(f",{LABEL}=true"))

    async def listed(self) -> set[str]:
        """Return the addresses that the Service leads to."""
        selector = f"kubernetes.io/service-name={NAME}"
        slices = await self._client.list(
            resources.ENDPOINT_SLICES, NAMESPACE, label_selector=selector
        )
        return {
            endpoint["addresses"][0]
            for endpoint_slice in slices.items
            for endpoint in endpoint_slice.get("endpoints") or ()
            if endpoint["conditions"]["ready"]
        }

    async def leaders(self) -> set[str]:
        """Return the Pods whose own metrics say that they lead; every replica serves them."""
        result = set()
        for name, pod in (await self.pods()).items():
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, KeyError):
                url = f"http://{pod['status']['podIP']}:8081/metrics"
                limit = aiohttp.ClientTimeout(total=1)
                async with aiohttp.ClientSession(timeout=limit) as http, http.get(url) as response:
                    if "gatehouse_controller_leader 1.0" in await response.text():
                        result.add(name)
        return result

    async def settled(self) -> str:
        """Return the leader when the Service leads to it alone and every replica is Ready."""
        labelled = await self.labelled()
        if len(labelled) != 1 or labelled != await self.leaders():
            return ""
        (name,) = labelled
        pod = (await self.pods())[name]
        alone = await self.listed() == {pod["status"]["podIP"]}
        return name if alone and len(await self.ready()) == 2 else ""

    def process(self, name: str) -> process_records.ProcessRecord:
        node = self._cluster.server.state.node
        result = process_records.recorded(pods.directory(node, NAMESPACE, name) / "process.json")
        assert result is not None
        return result


async def test_agents_reconnect_to_new_leader_without_traffic_loss(cluster: Cluster) -> None:
    async with (
        kube.Client.from_kubeconfig(cluster.server.kubeconfig) as client,
        echo.serve_echo({(cluster.gateway, BACKEND[1]): "app"}),
    ):
        await cluster.install(client, TAG)
        await apply(client, reachable(cluster))
        where = await address(client)
        await until_answered(where, "/")
        controllers = Controllers(cluster, client)
        leader = await until(controllers.settled)
        deployment = await client.get(resources.DEPLOYMENTS, NAME, NAMESPACE)
        assert deployment["status"]["availableReplicas"] == 2
        load = Load(where, PORT)
        async with load.running():
            await _kill(client, controllers, where, leader)
            await _suspend(client, controllers, where, await until(controllers.settled))
        print(dict(load.answered), dict(load.failed))
        assert not load.failed
        assert load.answered.total() > 500


async def _kill(client: kube.Client, controllers: Controllers, where: str, leader: str) -> None:
    """Kill the leader's process: its Pod stays and its container is started again."""
    former = controllers.process(leader)
    former.signal(signal.SIGKILL)

    async def ended() -> bool:
        return not former.alive()

    await until(ended)
    await until(controllers.settled)
    await add_route(client, where, "/after-kill")


async def _suspend(client: kube.Client, controllers: Controllers, where: str, leader: str) -> None:
    """Suspend the leader: another one leads. It ends when it wakes, and stands by from then on."""
    former = controllers.process(leader)
    former.signal(signal.SIGSTOP)
    try:

        async def another_leads() -> bool:
            return await controllers.leaders() - {leader} != set()

        await until(another_leads)

        async def alone() -> bool:
            listed, labelled = await controllers.listed(), await controllers.labelled()
            return len(listed) == 1 and len(labelled) == 1 and leader not in labelled

        await until(alone)
        # The kernel of a suspended leader acknowledges what agents send, so that only a ping tells:
        # it is sent within 20 s and has 60 s for the answer.
        await add_route(client, where, "/after-suspension")
    finally:
        former.signal(signal.SIGCONT)

    async def ended() -> bool:
        return not former.alive()

    await until(ended)
    assert await until(controllers.settled) != leader
