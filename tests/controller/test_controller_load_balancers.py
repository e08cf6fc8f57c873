"""Load balancers outside the cluster cost nothing until one is requested."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.inprocess import Server
from gatehouse.apis import resources
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.controller.load_balancers import LoadBalancers
from gatehouse.controller.load_balancers.loop import SHARED
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from gatehouse.standalone.state_directory import State
from gatehouse.transports.server import AgentServer, Denied, Identity


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of all objects that were read."""
    kinds: list[str] = []
    real = front.decode

    def decode(kind: str, raw: Any) -> Any:
        kinds.append(kind)
        return real(kind, raw)

    monkeypatch.setattr(front, "decode", decode)
    return kinds


async def test_services_and_nodes_are_ignored_until_a_load_balancer_exists(
    tmp_path: Any, decoded: list[str]
) -> None:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client, asyncio.TaskGroup() as group:
        made: LoadBalancers

        def on_changes(resource: resources.Resource, changes: Any) -> None:
            made.on_changes(resource, changes)

        informers = {each.kind: Informer(client, each, on_changes=on_changes) for each in SHARED}
        made = LoadBalancers(client, informers, AgentServer(nobody))
        tasks = [group.create_task(each.run()) for each in informers.values()]
        for each in informers.values():
            await each.synced.wait()
        tasks.append(group.create_task(made.run()))
        service = {"metadata": {"name": "s", "namespace": "default"}}
        await client.create(resources.SERVICES, {**service, "spec": {"ports": [{"port": 80}]}})
        await until_seen(informers["Service"], ("default", "s"))
        assert decoded == []
        assert made.metrics() == {}
        assert not made.watching_nodes()
        spec = {"hosts": [{"url": "http://127.0.0.1:9/api"}]}
        asked = {"metadata": {"name": "lb", "namespace": "default"}, "spec": spec}
        await client.create(resources.EXTERNAL_LOAD_BALANCERS, asked)
        async with asyncio.timeout(30):
            while "Service" not in decoded or not made.watching_nodes():
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()


async def nobody(_token: str) -> Identity:
    raise Denied("nobody has a token here")


async def until_seen(informer: Informer, name: tuple[str, str]) -> None:
    async with asyncio.timeout(30):
        while name not in informer.objects:
            await asyncio.sleep(0.01)


async def test_nlk_config_works_without_the_load_balancer_crd(tmp_path: Any) -> None:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client, asyncio.TaskGroup() as group:
        definitions = resources.Resource(
            "apiextensions.k8s.io", "v1", "customresourcedefinitions", "X", namespaced=False
        )
        await client.delete(definitions, "externalloadbalancers.gatehouse.dev")
        with pytest.raises(kube.NotFound):
            async with asyncio.timeout(30):
                while True:
                    await client.list(resources.EXTERNAL_LOAD_BALANCERS)
                    await asyncio.sleep(0.05)
        await client.create(resources.NAMESPACES, {"metadata": {"name": "nlk"}})
        config = {"metadata": {"name": "nlk-config", "namespace": "nlk"}}
        await client.create(resources.CONFIG_MAPS, {**config, "data": {"nginx-hosts": ""}})
        made: LoadBalancers
        informers = {
            each.kind: Informer(client, each, on_changes=lambda r, c: made.on_changes(r, c))
            for each in SHARED
        }
        made = LoadBalancers(client, informers, AgentServer(nobody))
        tasks = [group.create_task(each.run()) for each in informers.values()]
        for each in informers.values():
            await each.synced.wait()
        tasks.append(group.create_task(made.run()))
        async with asyncio.timeout(30):
            while front.NLK_CONFIG_KEY not in made.balancers:
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
