"""`gatehouse version` beside a running installation."""

from __future__ import annotations

import re

import pytest

import gatehouse
from fakes.installation import Installation, apply, hello, holds
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.cli.version import ComponentVersion, read_versions
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_versions_of_running_programs_are_shown(
    installation: Installation, client: kube.Client, gateway_class: str
) -> None:
    await apply(client, hello(gateway_class))
    await holds(client, "Gateway", "web", "Programmed")

    async def running() -> ComponentVersion | None:
        """Return the data plane when the version of its agent is known."""
        versions = await read_versions(installation.kubeconfig)
        return next((plane for plane in versions.data_planes if plane.running), None)

    plane = await until(running)
    assert plane.running == (gatehouse.__version__,)
    name = gateway_class.removeprefix("gatehouse-")
    assert re.fullmatch(rf"{name} 1\.\d+\.\d+", plane.proxy)
    versions = await read_versions(installation.kubeconfig)
    assert versions.controllers == (
        ComponentVersion("gatehouse up", "", (), True, (gatehouse.__version__,)),
    )
    assert versions.problems == ()
