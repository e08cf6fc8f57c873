"""`gatehouse top` shows the traffic of a running installation, on both proxies."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from fakes.installation import Installation, address, apply, hello, holds, route, traffic
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.cli.top import top
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_top_shows_requests_of_routes_and_backends(
    installation: Installation, client: kube.Client, backends: None, gateway_class: str
) -> None:
    await apply(client, [*hello(gateway_class), route("lost", "/lost", service="missing")])
    await holds(client, "Gateway", "web", "Programmed")
    options = ["--kubeconfig", str(installation.kubeconfig), "--interval", "1"]

    async def run(*words: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, top, [*options, *words])
        return result.output if result.exit_code == 0 else ""

    gateway = await address(client)
    async with traffic(gateway), traffic(gateway, "/lost"):

        async def counted() -> bool:
            report = json.loads(await run("default/web", "-o", "json") or "{}")
            rows = {row["name"]: row for row in report.get("rows", ())}
            good, lost = rows.get("default/app/0"), rows.get("default/lost/0")
            return bool(
                good and lost and good["requestsPerSecond"] > 1 and good["serverErrors"] == 0
                and good["p99Seconds"] and lost["serverErrors"] == 1
            )  # fmt: skip

        await until(counted)
        first, *_, _ = (await run()).splitlines()
        assert first.startswith(("1 data planes, ", "2 data planes, "))

        async def backend_counted() -> bool:
            return "Service/default/app" in await run("--by", "backend", "-n", "default")

        await until(backend_counted)
    result = await asyncio.to_thread(CliRunner().invoke, top, [*options, "no/such"])
    assert "no data plane found" in str(result.exception)
