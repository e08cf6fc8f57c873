"""Trials by an Envoy that serves, after a controller restart, under load."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakes.envoy_running import get
from fakes.keepalive_load import Load
from fakes.quarantined_envoy import BAD, KEY, Controller, controller_with_envoy, route
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.scope_tests import TRIAL_SCOPE

pytestmark = pytest.mark.process

GOOD = tuple(route(f"good-{number}") for number in range(6))
ACCEPTED = 4
"""Number of trials until Envoy has accepted the copy of a scope."""


@pytest.fixture
async def controller(tmp_path: Path) -> AsyncIterator[Controller]:
    async with controller_with_envoy(tmp_path) as result:
        yield result


async def status(port: int, path: str) -> int:
    """Return the status of a response; a redirect is not followed."""
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{port}{path}", allow_redirects=False) as response,
    ):
        return response.status


@contextlib.asynccontextmanager
async def replaced_generator(controller: Controller) -> AsyncIterator[None]:
    """Serve all routes, then run the body with a new controller, and under load.

    No request may fail. The new controller generates what Envoy rejects of the redirects.
    """
    controller.rejects_redirects = False
    await controller.settle()
    load = Load("127.0.0.1", controller.port)
    async with load.running():
        controller.rejects_redirects = True
        await controller.restart()
        yield
    assert not load.failed
    assert min(load.answered[kind] for kind in ("new", "kept", "h2")) > 10


def left_out(controller: Controller) -> set[str]:
    """Return the names of the routes that are left out."""
    return {finding.origin.name for finding in controller.quarantines.findings(KEY)}


async def test_unedited_route_is_left_out(controller: Controller) -> None:
    controller.hosts[""] = (*GOOD[:3], route("bad", BAD), *GOOD[3:], route(""))
    async with replaced_generator(controller):
        assert await status(controller.port, "/bad") == 302
        await controller.settle()
        assert controller.trials
        controller.hosts[""] = (*controller.hosts[""], route("later"))
        await controller.settle()
        assert await get(controller.port, "a.example", "/later") == (200, "app")
    (finding,) = controller.quarantines.findings(KEY)
    assert finding.origin == Origin("HTTPRoute", "shop", "bad", "rules[0].matches[0]")
    assert finding.reason.startswith("rejected by envoy/")


async def test_envoy_has_no_copy_of_a_scope_after_the_search(controller: Controller) -> None:
    controller.hosts[""] = (*GOOD, route("bad", BAD), route(""))
    async with replaced_generator(controller):
        before = await controller.scopes()
        await controller.settle(trials=ACCEPTED)
        assert await controller.scopes() == before | {TRIAL_SCOPE}
        await controller.settle()
        assert await controller.scopes() == before


async def test_unedited_routes_of_several_hostnames_are_left_out(controller: Controller) -> None:
    controller.hosts[""] = (*GOOD, route("bad", BAD), route(""))
    controller.hosts["a.example"] = (route("first"), route("worse", BAD), route("worst", BAD))
    async with replaced_generator(controller):
        await controller.settle()
        assert await get(controller.port, "a.example", "/first") == (200, "app")
    assert left_out(controller) == {"bad", "worse", "worst"}


@pytest.mark.parametrize("killed", ["controller", "agent", "both"])
async def test_search_ends_after_a_crash(controller: Controller, killed: str) -> None:
    """The next controller, or the control plane's next stream, removes the copy of a scope."""
    controller.hosts[""] = (*GOOD, route("bad", BAD), route(""))
    async with replaced_generator(controller):
        before = await controller.scopes()
        await controller.settle(trials=ACCEPTED)
        assert await controller.scopes() == before | {TRIAL_SCOPE}
        if killed != "controller":
            await controller.kill_agent()
        if killed != "agent":
            await controller.restart()
        if killed != "controller":
            controller.start_agent()
            await controller.plane.until(lambda report: bool(report.instances))
        await controller.settle()
        assert await controller.scopes() == before
    assert left_out(controller) == {"bad"}
