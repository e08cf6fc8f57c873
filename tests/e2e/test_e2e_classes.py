"""`gatehouse up --class`: GatewayClasses with the names that users have already."""

from __future__ import annotations

import os
import signal
import socket
from functools import partial
from typing import Any

import pytest

from fakes.installation import Installation, address, apply, get, hello, holds
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.runtime import procfs

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    return ("--class", "nginx", "--class", "edge=envoy")


@pytest.mark.parametrize("name", ["nginx", "edge"])
async def test_gateway_of_a_named_class_is_served_and_records_problems(
    installation: Installation, client: kube.Client, backends: None, name: str
) -> None:
    await apply(client, hello(name))

    async def answers() -> bool:
        try:
            return await get(await address(client)) == (200, "app")
        except OSError:
            return False

    await until(answers)
    served = await client.get(resources.GATEWAY_CLASSES, name)
    proxy = {"nginx": "nginx", "edge": "envoy"}[name]
    assert served["spec"]["controllerName"] == f"gatehouse.dev/{proxy}"
    await holds(client, "Gateway", "web", "Programmed")
    gateway = await client.get(resources.GATEWAYS, "web", "default")
    (pid,) = (
        pid
        for pid, words in procfs.running((proxy,))
        if any(f"{installation.state}/" in word and "worker" not in word for word in words)
    )
    os.kill(pid, signal.SIGKILL)

    async def warnings(text: str) -> list[Any]:
        return [
            event
            for event in (await client.list(resources.EVENTS, "default")).items
            if event["involvedObject"]["uid"] == gateway["metadata"]["uid"]
            and event["type"] == "Warning"
            and text in f"{event['reason']} {event['message']}"
        ]

    async def recorded(reason: str) -> list[str]:
        return [event["message"].split(": ")[1] for event in await warnings(reason)]

    events = await until(partial(recorded, "ProxyUnhealthy"))
    assert events == [{"nginx": "NGINX is not healthy", "envoy": "Envoy is not healthy"}[proxy]]
    await until(answers)
    assert not await recorded("InstanceCrashed")
    installation.agent().signal(signal.SIGKILL)
    events = await until(partial(recorded, "InstanceCrashed"))
    assert events == [f"container {proxy} died and was restarted"]
    assert not await recorded("InstanceDisconnected")
    await until(answers)
    taken = {"name": "taken", "protocol": "HTTP"}
    with socket.create_server(("0.0.0.0", 0)) as other:
        taken["port"] = other.getsockname()[1]
        patch = {"spec": {"listeners": [*gateway["spec"]["listeners"], taken]}}
        await client.patch(resources.GATEWAYS, "web", patch, "default")
        (event,) = await until(partial(warnings, f":{taken['port']}"))
        assert "in use" in event["message"]
    await client.delete(resources.GATEWAYS, "web", "default")
