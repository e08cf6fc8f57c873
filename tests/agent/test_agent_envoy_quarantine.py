"""HTTPRoutes that a real Envoy rejects: the quarantine leaves out only these."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakes.durations import pace
from fakes.envoy_running import get
from fakes.quarantined_envoy import BAD, KEY, Controller, controller_with_envoy, route
from gatehouse.dataplane.origin import Origin

pytestmark = pytest.mark.process


@pytest.fixture
async def controller(tmp_path: Path) -> AsyncIterator[Controller]:
    async with controller_with_envoy(tmp_path) as result:
        yield result


@pytest.mark.parametrize("shared", [False, True], ids=["own hostname", "shared hostname"])
async def test_route_that_envoy_rejects_is_left_out(controller: Controller, shared: bool) -> None:
    """Envoy names a resource, which has several origins if routes share the hostname."""
    bad, later = ("a.example", "a.example") if shared else ("bad.example", "later.example")
    old = route("old")
    controller.hosts["a.example"] = (old,)
    await controller.settle()
    assert await get(controller.port, "a.example", "/old") == (200, "app")
    for host, added in (
        (bad, route("bad", BAD)),
        (later, route("later")),
    ):
        controller.hosts[host] = (*controller.hosts.get(host, ()), added)
    await controller.settle()
    assert await get(controller.port, "a.example", "/old") == (200, "app")
    assert await get(controller.port, later, "/later") == (200, "app")
    assert (await get(controller.port, bad, "/bad"))[0] == 500
    (finding,) = controller.quarantines.findings(KEY)
    assert finding.origin == Origin("HTTPRoute", "shop", "bad", "rules[0].matches[0]")
    assert finding.reason.startswith("rejected by envoy/")
    assert "HTTPRoute shop/bad" in controller.events[-1]
    # A changed route is tried again.
    controller.hosts[bad] = tuple(
        route("bad") if entry.origin == finding.origin else entry for entry in controller.hosts[bad]
    )
    await controller.settle()
    assert await get(controller.port, bad, "/bad") == (200, "app")
    assert controller.quarantines.findings(KEY) == ()


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("shared", [False, True], ids=["own hostname", "shared hostname"])
async def test_new_envoy_is_ready_with_all_good_routes_or_not_at_all(
    controller: Controller, shared: bool, late: bool
) -> None:
    """It has nothing, and no version is known to be good. A late rejection names no resource."""
    controller.rejects_late = late
    bad = "a.example" if shared else "bad.example"
    controller.hosts["a.example"] = tuple(route(f"good-{number}") for number in range(6))
    controller.hosts[bad] = (*controller.hosts.get(bad, ()), route("bad", BAD))
    statuses: list[set[int]] = []

    async def watch() -> None:
        while len(statuses) < 20:
            if await _is_ready(controller.health):
                paths = (f"/good-{number}" for number in range(6))
                answers = [await get(controller.port, "a.example", path) for path in paths]
                statuses.append({status for status, _ in answers})
            await pace(0.005)

    watching = asyncio.create_task(watch())
    await controller.settle()
    await watching
    assert statuses == [{200}] * len(statuses)
    assert (await get(controller.port, bad, "/bad"))[0] == 500


async def _is_ready(port: int) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/readyz") as response,
        ):
            return response.status == 200
    return False
