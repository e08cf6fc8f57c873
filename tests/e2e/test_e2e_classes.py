"""`gatehouse up --class`: GatewayClasses with the names that users have already."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from fakes.installation import Installation, address, apply, get, hello, holds
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.runtime import procfs

pytestmark = pytest.mark.process

PROXIES = {"nginx": "nginx", "edge": "envoy"}
"""Proxies by GatewayClass."""


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    return ("--class", "nginx", "--class", "edge=envoy")


class ServedGateway:
    """A Gateway with a running data plane."""

    def __init__(
        self, installation: Installation, client: kube.Client, obj: dict[str, Any], proxy: str
    ) -> None:
        self.installation, self.client, self.object, self.proxy = installation, client, obj, proxy

    @property
    def proxies(self) -> list[int]:
        """Process IDs of its proxies, which are one unless it is being deleted."""
        return [
            pid
            for pid, words in procfs.running((self.proxy,))
            if any(f"{self.installation.state}/" in word and "worker" not in word for word in words)
        ]

    async def answers(self) -> bool:
        try:
            return await get(await address(self.client)) == (200, "app")
        except OSError:
            return False

    async def warnings(self, text: str) -> list[str]:
        """Return the messages of its Warnings with a text in their reason or message."""
        return [
            event["message"]
            for event in (await self.client.list(resources.EVENTS, "default")).items
            if event["involvedObject"]["uid"] == self.object["metadata"]["uid"]
            and event["type"] == "Warning"
            and text in f"{event['reason']} {event['message']}"
        ]

    async def recorded(self, reason: str) -> list[str]:
        """Return what Warnings with a reason say after the name of the instance."""
        return [message.split(": ")[1] for message in await self.warnings(reason)]


@pytest.fixture(params=list(PROXIES))
async def gateway(
    request: pytest.FixtureRequest, installation: Installation, client: kube.Client, backends: None
) -> AsyncIterator[ServedGateway]:
    """Yield a Gateway of a named class, and delete it with its data plane."""
    await apply(client, hello(request.param))
    await holds(client, "Gateway", "web", "Programmed")
    served = await client.get(resources.GATEWAYS, "web", "default")
    gateway = ServedGateway(installation, client, served, PROXIES[request.param])
    await until(gateway.answers)
    yield gateway
    await client.delete(resources.GATEWAYS, "web", "default")
    await until(lambda: not gateway.proxies)


async def test_named_class_has_the_controller_of_its_proxy(gateway: ServedGateway) -> None:
    name = gateway.object["spec"]["gatewayClassName"]
    served = await gateway.client.get(resources.GATEWAY_CLASSES, name)
    assert served["spec"]["controllerName"] == f"gatehouse.dev/{gateway.proxy}"


async def test_death_of_a_proxy_is_recorded(gateway: ServedGateway) -> None:
    (pid,) = gateway.proxies
    os.kill(pid, signal.SIGKILL)
    (event,) = await until(partial(gateway.recorded, "ProxyUnhealthy"))
    assert (
        event == {"nginx": "NGINX is not healthy", "envoy": "Envoy is not healthy"}[gateway.proxy]
    )
    await until(gateway.answers)
    assert not await gateway.recorded("InstanceCrashed")


async def test_death_of_an_agent_is_recorded(gateway: ServedGateway) -> None:
    gateway.installation.agent().signal(signal.SIGKILL)
    events = await until(partial(gateway.recorded, "InstanceCrashed"))
    assert events == [f"container {gateway.proxy} died and was restarted"]
    assert not await gateway.recorded("InstanceDisconnected")
    await until(gateway.answers)


@pytest.mark.parametrize("returning", [False, True])
async def test_port_in_use_is_recorded(gateway: ServedGateway, returning: bool) -> None:
    """Also if the agent connects again at the same time, and so does not serve the rest yet."""
    if returning:
        gateway.installation.agent().signal(signal.SIGKILL)
    taken = {"name": "taken", "protocol": "HTTP"}
    with socket.create_server(("0.0.0.0", 0)) as other:
        taken["port"] = other.getsockname()[1]
        patch = {"spec": {"listeners": [*gateway.object["spec"]["listeners"], taken]}}
        await gateway.client.patch(resources.GATEWAYS, "web", patch, "default")
        events = await until(partial(gateway.warnings, f":{taken['port']}"))
        assert all("in use" in event for event in events)
