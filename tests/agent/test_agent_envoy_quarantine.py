"""HTTPRoutes that a real Envoy rejects: the quarantine leaves out only these."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakes import patience
from fakes.durations import pace
from fakes.envoy_agent import envoys
from fakes.envoy_running import get
from fakes.patience import until
from fakes.quarantined_envoy import BAD, KEY, Controller, controller_with_envoy, route
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.subscription import RESPONSE_BYTES

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


GOOD = tuple(f"/good-{number}" for number in range(6))


async def status(controller: Controller, path: str) -> int:
    """Return the status of a response; 0 without a connection."""
    with contextlib.suppress(aiohttp.ClientConnectorError):
        return (await get(controller.port, "a.example", path))[0]
    return 0


@contextlib.asynccontextmanager
async def asked(controller: Controller) -> AsyncIterator[list[tuple[bool, set[int]]]]:
    """Ask for the good routes all the time, at least until they are served.

    Yield whether the agent was ready before each round, and the statuses of the round.
    """
    rounds: list[tuple[bool, set[int]]] = []
    stop = asyncio.Event()

    async def ask() -> None:
        while not (stop.is_set() and rounds and rounds[-1] == (True, {200})):
            ready = await _is_ready(controller.health)
            rounds.append((ready, {await status(controller, path) for path in GOOD}))
            await pace(0.005)

    async with patience.limit(), asyncio.TaskGroup() as group:
        group.create_task(ask())
        yield rounds
        stop.set()


def with_bad_route(controller: Controller, *, shared: bool) -> str:
    """Set good routes, and one that Envoy rejects. Return the hostname of this one."""
    bad = "a.example" if shared else "bad.example"
    controller.hosts["a.example"] = tuple(route(path.removeprefix("/")) for path in GOOD)
    controller.hosts[bad] = (*controller.hosts.get(bad, ()), route("bad", BAD))
    return bad


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("shared", [False, True], ids=["own hostname", "shared hostname"])
async def test_new_envoy_serves_all_good_routes_or_accepts_no_connection(
    controller: Controller, shared: bool, late: bool
) -> None:
    """It has nothing, and no version is known to be good. A late rejection names no resource."""
    controller.rejects_late = late
    bad = with_bad_route(controller, shared=shared)
    async with asked(controller) as rounds:
        await controller.settle()
    assert set().union(*(statuses for _, statuses in rounds)) == {0, 200}
    assert all(statuses == {200} for ready, statuses in rounds if ready)
    assert (await get(controller.port, bad, "/bad"))[0] == 500
    assert controller.trials


async def test_agent_killed_during_the_first_search_starts_envoy_after_it(
    controller: Controller,
) -> None:
    """The new agent adopts an Envoy that still waits."""
    with_bad_route(controller, shared=True)
    async with asked(controller) as rounds:
        await controller.settle(trials=2)
        await controller.kill_agent()
        controller.start_agent()
        await controller.plane.until(lambda report: bool(report.instances))
        assert set().union(*(statuses for _, statuses in rounds)) == {0}
        await controller.settle()
    assert set().union(*(statuses for _, statuses in rounds)) == {0, 200}


async def test_controller_restarted_during_the_first_search_starts_envoy_after_the_next(
    controller: Controller,
) -> None:
    with_bad_route(controller, shared=True)
    async with asked(controller) as rounds:
        await controller.settle(trials=2)
        await controller.restart()
        await controller.plane.until(lambda report: bool(report.instances))
        await controller.settle()
    assert set().union(*(statuses for _, statuses in rounds)) == {0, 200}


async def test_envoy_killed_during_the_first_search_waits_again(
    controller: Controller, tmp_path: Path
) -> None:
    with_bad_route(controller, shared=True)
    async with asked(controller) as rounds:
        await controller.settle(trials=2)
        (envoy,) = envoys(tmp_path)
        os.kill(envoy, signal.SIGKILL)
        await until(lambda: envoys(tmp_path) not in ([], [envoy]))
        await controller.settle()
    assert set().union(*(statuses for _, statuses in rounds)) == {0, 200}


async def test_envoy_starts_with_the_last_of_many_routes(controller: Controller) -> None:
    """They take several responses."""
    hosts = [f"g{number}.example" for number in range(100)]
    large = route("x" * (3 * RESPONSE_BYTES // len(hosts)))
    controller.hosts |= dict.fromkeys(hosts, (route("good"), large))
    settling = asyncio.create_task(controller.settle())
    await until(lambda: listens(controller.port))
    assert [await get(controller.port, host, "/good") for host in hosts] == [(200, "app")] * 100
    await settling


async def test_restarted_agent_is_ready_at_once_beside_an_envoy_that_serves(
    controller: Controller,
) -> None:
    with_bad_route(controller, shared=True)
    async with asked(controller):
        await controller.settle()
    async with asked(controller) as rounds:
        await controller.kill_agent()
        controller.start_agent()
        await controller.plane.until(lambda report: bool(report.instances))
    assert set().union(*(statuses for _, statuses in rounds)) == {200}


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def _is_ready(port: int) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/readyz") as response,
        ):
            return response.status == 200
    return False
