"""Views of the console in a browser, on a running installation with each proxy."""

from __future__ import annotations

import json

import pytest

from fakes.chromium import CHROMIUM, open_page
from fakes.console import log_in, running_console, show
from fakes.installation import Installation, address, apply, hello, holds, traffic
from fakes.installation_fixtures import shared_installation as installation
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not CHROMIUM, reason="needs Debian's package chromium"),
]


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_route_view_shows_live_requests_by_status_class(
    installation: Installation, client: kube.Client, backends: None, gateway_class: str
) -> None:
    manifests = hello(gateway_class)
    route = next(item for item in manifests if item["kind"] == "HTTPRoute")
    missing = {"name": "missing", "port": 80, "weight": 1}
    rules = route["spec"]["rules"]
    rules[0]["backendRefs"][0]["weight"] = 3
    rules[0]["backendRefs"].append(missing)
    rules.append({"matches": [{"path": {"value": "/lost"}}], "backendRefs": [missing]})
    await apply(client, manifests)
    await holds(client, "Gateway", "web", "Programmed")
    name = {"kind": "HTTPRoute", "namespace": "default", "name": route["metadata"]["name"]}
    view = "route?" + "&".join(f"{field}={value}" for field, value in name.items())
    gateway = await address(client)
    async with (
        traffic(gateway),
        traffic(gateway, "/lost"),
        running_console(client) as console,
        open_page() as page,
    ):
        await log_in(page, console)
        await show(page, view)
        live = "[...document.querySelectorAll('.live')].map((text) => text.innerText)"
        await page.until(f"/requests\\/s: 2xx .*, p50 .* ms, p99 .* ms/.test({live}[0])")
        await page.until(f"/requests\\/s: 5xx .*, p50 .* ms, p99 .* ms/.test({live}[1])")
        print(await page.evaluate(f"{live}.join(' | ')"))
        row = "[...document.querySelectorAll('tbody tr')].map((row) => row.innerText)"
        pattern = "/Service default\\/app.*3 \\(75 %\\).*1 of 1 ready.*2xx/s"
        await page.until(f"{row}.some((text) => {pattern}.test(text))")
        rows = await page.evaluate(row)
    assert any("missing not found" in text for text in rows), json.dumps(rows)
