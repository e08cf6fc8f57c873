"""`gatehouse explain` and `gatehouse status` name why requests failed, without sending any."""

from __future__ import annotations

import asyncio

import pytest
from click import Command
from click.testing import CliRunner

from fakes.installation import PORT, Installation, address, apply, get, hello
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from fakes.request_causes import endpoints, http_route, service, to
from gatehouse.apis import resources
from gatehouse.cli.explain import explain
from gatehouse.cli.status import status
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process


@pytest.mark.parametrize("class_name", ["gatehouse-nginx", "gatehouse-envoy"])
async def test_reasons_of_failed_requests_are_in_the_output(
    installation: Installation, client: kube.Client, class_name: str
) -> None:
    refusing = endpoints("closed", "127.0.0.1", 1)
    route = http_route("closed", to("closed"))
    await apply(client, [*hello(class_name), service("closed"), refusing, route])
    where = await address(client)

    async def fails() -> bool:
        try:
            return (await get(where, Host="closed.example"))[0] in (502, 503)
        except OSError:
            return False

    await until(fails)
    words = ("--kubeconfig", str(installation.kubeconfig))

    async def output(command: Command, *more: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, command, [*more, *words])
        return result.output

    cause = "reason connection_failure: the endpoint refused or closed the connection"

    async def is_named() -> bool:
        url = f"http://closed.example:{PORT}/"
        explained = await output(explain, url, "--gateway", "default/web")
        report = await output(status, "default/web")
        return all(
            cause in text and "1 is the right target" in text for text in (explained, report)
        )

    await until(is_named)
    for resource, name in (
        (resources.GATEWAYS, "web"),
        (resources.HTTP_ROUTES, "closed"),
        (resources.ENDPOINT_SLICES, "closed-1"),
        (resources.SERVICES, "closed"),
    ):
        await client.delete(resource, name, "default")
