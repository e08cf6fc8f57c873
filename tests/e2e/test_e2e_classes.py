"""`gatehouse up --class`: GatewayClasses with the names that users have already."""

from __future__ import annotations

import pytest

from fakes.installation import address, apply, get, hello
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    return ("--class", "nginx", "--class", "edge=envoy")


@pytest.mark.parametrize("name", ["nginx", "edge"])
async def test_gateway_of_a_named_class_is_served(
    client: kube.Client, backends: None, name: str
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
    await client.delete(resources.GATEWAYS, "web", "default")
